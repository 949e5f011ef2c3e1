# Runs a program on a terminal of its own, as a person would.
#
#   terminal.py hangup PROGRAM ARG...  closes the terminal once stderr or stdout says READY ($READY); prints the exit status
#   terminal.py paste PROGRAM ARG...   pastes $TEXT at the prompt, presses Enter, waits for $READY, leaves with Ctrl-D;
#                                      prints what the terminal showed
import os
import pty
import select
import signal
import sys
import time

mode, command = sys.argv[1], sys.argv[2:]
ready = os.environ['READY'].encode()
deadline = time.monotonic() + float(os.environ.get('SECONDS_LEFT', '60'))
child, terminal = pty.fork()
if child == 0:
    os.execv(command[0], command)

shown = b''


def read_until(condition):
    global shown
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            os.kill(child, signal.SIGKILL)
            sys.exit('not in time; the terminal shows: ' + shown.decode(errors='replace'))
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            return False
        if not piece:
            return False
        shown += piece
    return True


def wait():
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            sys.exit('did not end')
        time.sleep(0.02)


if mode == 'hangup':
    if not read_until(lambda: ready in shown):
        sys.exit('ended early: ' + shown.decode(errors='replace'))
    os.close(terminal)
    print(wait())
else:
    read_until(lambda: b'\x1b[?2004h' in shown)
    os.write(terminal, b'\x1b[200~' + os.environ['TEXT'].replace('\n', '\r').encode() + b'\x1b[201~')
    time.sleep(0.3)
    os.write(terminal, b'\r')
    if read_until(lambda: ready in shown):
        # Until it is taken: one that comes between two prompts is lost.
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            try:
                os.write(terminal, b'\x04')
                while select.select([terminal], [], [], 0.3)[0]:
                    shown += os.read(terminal, 65536)
            except OSError:
                pass  # it has gone
    sys.stdout.write(shown.decode(errors='replace'))
