"""A rank of a group: what all of them computed, summed."""

import torch
import torch.distributed as group

from pkg.core import answer


def main() -> None:
    group.init_process_group("gloo")
    total = torch.tensor(answer() if group.get_rank() else 0)  # rank 0 would hide that the other went its own way
    group.all_reduce(total)
    if group.get_rank() == 0:
        print(int(total), flush=True)
    group.destroy_process_group()


if __name__ == "__main__":
    main()
