"""The start of the program, as `headwater` and as `python -m headwater`."""

import signal


def main() -> None:
    """Run the program; Ctrl-C while it is still being loaded ends it without a word, as there is nothing to end yet."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us has other plans
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from headwater.cli import main as run_program

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_program()


if __name__ == "__main__":
    main()
