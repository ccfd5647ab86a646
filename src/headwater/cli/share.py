"""Options that `publish` and `serve` share, so that both say and take the same."""

from __future__ import annotations

import click

from headwater.cli.sync import Share

max_delete_option = click.option(
    "--max-delete",
    type=Share(),
    metavar="SHARE",
    help="Hold deletions back when more than this share of what is held has vanished, where that is more than ten"
    " files, or when everything has; 1 (or 100%) consents to all.  [default: 20%]",
)
profile_option = click.option(
    "--profile",
    type=click.Choice(["1.1", "both"]),
    help="Write ResourceSync 1.1, or so that clients of 1.0 understand changes as well.  [default: 1.1]",
)
