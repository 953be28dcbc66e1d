"""Writes the report to the pull request as one comment, and updates it on later runs. It never fails the job."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TIMEOUT_S = 30
MAX_PAGES = 30
MAX_CHARACTERS = 65_000


def main() -> None:
    number, path = pull_request(), Path(os.environ["PV_COMMENT"])
    if number is None or not path.is_file():
        print("No comment: this is no pull request, or there is no report.")
        return
    marker = f"<!-- pv-report {os.environ['PV_NAME']} -->"
    body = f"{marker}\n{path.read_text(encoding='utf-8')}"[:MAX_CHARACTERS]
    try:
        publish(number, marker, body)
    except urllib.error.HTTPError as error:
        # The token of a pull request from a fork can only read.
        print(f"::notice title=pv::no comment was written (HTTP {error.code}); the job summary has the report")
    except (OSError, ValueError) as error:
        print(f"::notice title=pv::no comment was written ({type(error).__name__}); the job summary has the report")


def pull_request() -> int | None:
    """Return the number of the pull request that the job runs for."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    except (KeyError, OSError, ValueError):
        return None
    number = event.get("pull_request", {}).get("number")
    return number if isinstance(number, int) else None


def publish(number: int, marker: str, body: str) -> None:
    """Update the comment that starts with the marker, or write the first one."""
    comments = f"/issues/{number}/comments"
    for page in range(1, MAX_PAGES + 1):
        found = request("GET", f"{comments}?per_page=100&page={page}")
        for comment in found:
            if (comment.get("body") or "").startswith(marker):
                request("PATCH", f"/issues/comments/{comment['id']}", {"body": body})
                return
        if len(found) < 100:
            break
    request("POST", comments, {"body": body})


def request(method: str, path: str, content: dict[str, str] | None = None) -> Any:
    url = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}{path}"
    headers = {"Authorization": f"Bearer {os.environ['PV_TOKEN']}", "Accept": "application/vnd.github+json"}
    data = json.dumps(content).encode() if content is not None else None
    asked = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
