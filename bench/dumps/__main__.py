"""`python -m bench.dumps [--quick] [PART ...]`: some parts of the room of dumps, with the table on standard output."""

from __future__ import annotations

import argparse

from bench.__main__ import judged, machine, table
from bench.dumps import PARTS, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.dumps")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    options = parser.parse_args()
    rows = run(options.quick, options.parts or PARTS)
    print(f"{machine()}\n\n{table([judged(row) for row in rows])}")


if __name__ == "__main__":
    main()
