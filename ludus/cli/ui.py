"""ludus ui"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ludus.apps.play.people import FILE as PEOPLE
from ludus.apps.ui.server.address import LOOPBACK, PLAY, STEER, WATCH, Rights, Tokens, is_loopback, listen
from ludus.cli.command import Command, folder, whole_number
from ludus.cli.output import stream, write
from ludus.core.errors import ConfigError
from ludus.core.packages import optional
from ludus.storage.run_dirs import RUNS

if TYPE_CHECKING:
    from ludus.apps.ui.server.access import Password
    from ludus.apps.ui.server.serving import Served

SECRET, PASSWORD, WATCH_PASSWORD = "LUDUS_UI_SECRET", "LUDUS_UI_PASSWORD", "LUDUS_UI_WATCH_PASSWORD"
"""Of the environment: what the tokens are made from, so that addresses and cookies outlive a restart (default: random); a password; one
that only watches."""
_SHORTEST = {SECRET: 32, PASSWORD: 10, WATCH_PASSWORD: 10}  # characters
_CALLED = {SECRET: SECRET, PASSWORD: "the password", WATCH_PASSWORD: "the password for watching"}


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options of a server of the page; `ludus ui` reads them."""
    parser.add_argument(
        "--root",
        type=folder,
        default=RUNS,
        help="directory of the runs to show if none is named, and of people and ratings (default: ./runs)",
    )
    parser.add_argument(
        "--port",
        type=whole_number,
        help="port to listen on (default: 8300, or the next free one; 0: any free port)",
    )
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument("--no-steering", action="store_true", help="do not allow steering runs")
    parser.add_argument("--watch-only", action="store_true", help="allow neither steering nor playing")
    group = parser.add_argument_group("for other machines (`ssh -L 8300:localhost:8300 HOST` needs none of this)")
    group.add_argument("--host", default=LOOPBACK, help="address to listen on; 0.0.0.0: all addresses of this machine")
    group.add_argument(
        "--password",
        action="store_true",
        help=f"require a password from users without a token; it is read here, or from {PASSWORD} in the environment, which alone is "
        "enough",
    )
    group.add_argument(
        "--password-file", type=Path, metavar="FILE", help="read the password from the first line of this file"
    )
    group.add_argument(
        "--watch-password",
        action="store_true",
        help=f"a second password, which only watches; read here, or from {WATCH_PASSWORD} in the environment, which alone is enough",
    )
    group.add_argument("--certificate", type=Path, metavar="FILE", help="serve over TLS with this certificate (PEM)")
    group.add_argument("--key", type=Path, metavar="FILE", help="private key of the certificate (PEM)")
    group.add_argument(
        "--known-as",
        metavar="NAME",
        action="append",
        default=[],
        help="another host name that browsers may use for this machine; others are refused",
    )


def serving(options: argparse.Namespace) -> str:
    """Return the options of `add_server` that were given, as they are typed; "" of none."""
    parser = argparse.ArgumentParser(add_help=False)
    add_server(parser)
    names = [
        action.option_strings[0]
        for action in parser._actions
        if getattr(options, action.dest) != parser.get_default(action.dest)
    ]
    return ", ".join(names)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN|EXPERIMENT",
        nargs="*",
        help="runs to show, by name in ./runs or by directory (default: all runs in ./runs, including new ones)",
    )
    add_server(parser)


def _execute(options: argparse.Namespace) -> int:
    served = server_of(options, options.runs)
    known = served.state.watcher.runs
    runs = (*known.all(), *known.entries()) if options.runs else ()
    to = f"#/run/{runs[0].id}{'/play' if runs[0].entry else ''}" if len(runs) == 1 else ""
    return serve_until_ctrl_c(served, to=to, browser=not options.no_open)


def server_of(options: argparse.Namespace, runs: Sequence[str]) -> Served:
    """By the options of `add_server`. runs: what it shows; none: all below the root. Raises ConfigError, RunError."""
    tls, passwords, tokens = _tls(options), _passwords(options), own_tokens()
    _require_safe(options.host, guarded=bool(tls or passwords))
    with optional("the page", extra="ui"):
        from ludus.apps.ui.server.access import Access, Hosts
        from ludus.apps.ui.server.known_runs import KnownRuns
        from ludus.apps.ui.server.serving import serve

    known = KnownRuns(runs, root=None if runs else options.root)
    access = Access(tokens, _granted(options), Hosts.of(options.host, options.known_as), passwords)
    listening = listen(options.host, options.port)
    return serve(known, listening, access=access, host=options.host, tls=tls, people=options.root / PEOPLE)


def serve_until_ctrl_c(served: Served, *, to: str = "", browser: bool = True) -> int:
    """Print the address, open the browser if it is to, and serve; return the exit code. to: the place that is opened, such as
    "#/people"."""
    most = served.state.access.most
    link = served.link(most, to)
    write(link)
    stream().flush()
    with opened(link, wanted=browser) as is_open:
        sys.stderr.write("\n".join([*_explained(served, is_open=is_open), ""]))
        served.run()
    return 0


def _explained(served: Served, *, is_open: bool) -> Iterator[str]:
    most, address = served.state.access.most, served.address
    yield "It is open in the browser." if is_open else "Open this address in a browser."
    if most != WATCH:
        more = " and steer runs" if "steer" in most else ""
        yield f"Who has it may play{more}; for those who are to watch only: {served.link(WATCH)}"
    if not is_loopback(address.host):
        yield "Every machine that reaches this one can ask for the page, and needs the address or the password."
        if not address.tls:
            yield "Without --certificate, whoever listens on the network between can read what is sent, the password too."
    yield "Ctrl-C ends the page; runs continue."


def _granted(options: argparse.Namespace) -> tuple[Rights, ...]:
    if options.watch_only:
        return (WATCH,)
    return (WATCH, PLAY) if options.no_steering else (WATCH, PLAY, STEER)


def own_tokens() -> Tokens:
    """Of a server on this machine: made from LUDUS_UI_SECRET where that is set, else from what nobody knows. Raises ConfigError for a short
    secret."""
    secret = os.environ.get(SECRET, "")
    return Tokens(_long_enough(secret, SECRET).encode()) if secret else Tokens()


def _long_enough(text: str, name: str) -> str:
    least = _SHORTEST[name]
    if len(text) < least:
        raise ConfigError(
            f"{_CALLED[name]} has {len(text)} characters; at least {least} were expected. Give a longer one."
        )
    return text


def _passwords(options: argparse.Namespace) -> tuple[Password, ...]:
    """Return the password of all rights and the one that only watches, as far as they are set. Raises ConfigError."""
    full = _first_line(options.password_file) if options.password_file is not None else None
    full = _read_password(PASSWORD, "--password", required=options.password) if full is None else full
    watch = _read_password(WATCH_PASSWORD, "--watch-password", required=options.watch_password)
    if full is not None and full == watch:
        raise ConfigError("the password and the password for watching are the same. Give two different ones.")
    pairs = ((full, PASSWORD, _granted(options)[-1]), (watch, WATCH_PASSWORD, WATCH))
    texts = [(_long_enough(text, name), rights) for text, name, rights in pairs if text is not None]
    if not texts:
        return ()
    with optional("the page", extra="ui"):
        from ludus.apps.ui.server.access import Password
    return tuple(Password.of(text, rights) for text, rights in texts)


def _first_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"--password-file {str(path)!r} cannot be read: {why}.") from error
    return lines[0] if lines else ""


def _read_password(name: str, option: str, *, required: bool) -> str | None:
    """Return the password of an environment variable; without one, what is typed where the option asks for it."""
    if text := os.environ.get(name, ""):
        return text
    if not required:
        return None
    if not sys.stdin.isatty():
        more = ", or give --password-file" if name == PASSWORD else ""
        raise ConfigError(f"{option} was given, and the terminal cannot ask for it. Set {name}{more}.")
    return getpass.getpass("Password for the page: " if name == PASSWORD else "Password for watching: ")


def _tls(options: argparse.Namespace) -> tuple[Path, ...]:
    """Return (certificate, key), or nothing. Raises ConfigError if they cannot be used."""
    if options.certificate is None and options.key is None:
        return ()
    if options.certificate is None or options.key is None:
        raise ConfigError("--certificate and --key belong together; give both.")
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
    except OSError as error:  # of which ssl.SSLError is one
        raise ConfigError(
            f"--certificate {str(options.certificate)!r} and --key {str(options.key)!r} cannot be used: {error.strerror or error}. Give "
            "PEM files that belong together."
        ) from error
    return (options.certificate, options.key)


def _require_safe(host: str, *, guarded: bool) -> None:
    """Raise ConfigError for an address that other machines reach, where nothing guards the page."""
    if is_loopback(host) or guarded:
        return
    raise ConfigError(
        f"--host {host} lets every machine that reaches this one ask for the page: who has its address sees all runs, and may steer them. "
        "Give --password, or --certificate and --key, or both. From one other machine, `ssh -L 8300:localhost:8300 HOST` does it without."
    )


# ---------------------------------------------------------------------------------------------- the browser


@contextmanager
def opened(link: str, *, wanted: bool = True) -> Iterator[bool]:
    """Open a link in the browser; whether that was possible. What other users of the machine can see, the browser's arguments, names a
    file that only its owner can read and that leads there."""
    if not wanted or not _has_browser():
        yield False
        return
    with TemporaryDirectory(prefix="ludus-") as private:  # of mode 0700
        file = Path(private) / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">\n', encoding="utf-8")
        yield webbrowser.open(file.as_uri())


def _has_browser() -> bool:
    """Not one in this terminal, which would take its place."""
    on_screen = sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return on_screen


COMMAND = Command(
    name="ui",
    summary="Open the web page: watch runs live, steer them, play against their policies.",
    examples=(
        ("ludus ui", "all runs in ./runs"),
        ("ludus ui leduc-20261120-120000 ~/copied/run", "two runs, in any directory"),
        ("ludus ui --watch-only --no-open", "print the address only; allow no changes"),
        ("ludus ui --host 0.0.0.0 --password", "for other machines too, with a password"),
        ("ludus ui --host 0.0.0.0 --password --watch-password", "with a second password, which only watches"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
