#!/usr/bin/env bash
# Finds the commit that a pull request is compared with, and gets it where the checkout left it out. Outputs:
# sha (empty without a base), key (of the stored results), saves (whether this run stores its own).
set -euo pipefail

# Prints a value of the event that started the workflow, by its path; nothing if it has none.
event() {
  python - "$@" << 'END'
import json, os, sys
try:
    found = json.load(open(os.environ["GITHUB_EVENT_PATH"], encoding="utf-8"))
    for name in sys.argv[1:]:
        found = found[name]
    print(found)
except (KeyError, OSError, TypeError, ValueError):
    pass
END
}

sha=""
case "$GITHUB_EVENT_NAME" in
  pull_request*)
    sha=$(event pull_request base sha)
    # GitHub checks out a merge commit, whose first parent is the base; a shallow clone names it, too.
    mapfile -t parents < <(git cat-file commit HEAD 2> /dev/null | sed -n '/^$/q; s/^parent //p')
    if [ "${#parents[@]}" -eq 2 ] && [ "${parents[1]}" = "$(event pull_request head sha)" ]; then
      sha="${parents[0]}"
    fi
    ;;
  merge_group) sha=$(event merge_group base_sha) ;;
esac

if [ -n "$sha" ] && ! git cat-file -e "$sha^{commit}" 2> /dev/null; then
  git fetch --quiet --no-tags --depth=1 origin "$sha" 2> /dev/null ||
    echo "::warning title=pv::cannot fetch the base commit $sha%3A check out with 'fetch-depth: 0'"
fi
if [ -n "$sha" ]; then
  sha=$(git merge-base "$sha" HEAD 2> /dev/null || echo "$sha")
fi

saves=false
if [ "$GITHUB_EVENT_NAME" = push ] && [ "$PV_CACHE" = true ] && [ -n "$GITHUB_REF_NAME" ] &&
  [ "$GITHUB_REF_NAME" = "$(event repository default_branch)" ]; then
  saves=true
fi
{
  echo "sha=$sha"
  echo "key=${sha:-$GITHUB_SHA}"
  echo "saves=$saves"
} >> "$GITHUB_OUTPUT"
