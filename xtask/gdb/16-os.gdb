# gdb for 16-os. `cargo run -- gdb` has gdb read this before it connects to QEMU; README.md says how to use it.

set confirm off
# A name that is mistyped is an error, and not a breakpoint that is never hit.
set breakpoint pending off

define break_at_kernel_main
    # A hardware breakpoint compares addresses and writes nothing: it can be set while paging is off and the kernel's
    # addresses do not exist yet. It is at the first instruction, because behind the prologue, where gdb would put it, an
    # inlined function may begin; only with C's notation can the name be part of an address.
    set language c
    thbreak *'kernel::kernel_main'
    set language auto
end
document break_at_kernel_main
Stop once at kernel_main, where the kernel's boot order begins. Can be set from the machine's reset on.
end

define to_kernel_main
    break_at_kernel_main
    continue
end
document to_kernel_main
Run from the machine's reset, through the firmware, to kernel_main, where the kernel's boot order begins.
end

# Last, because a gdb without Python stops reading here: its backtraces have functions without their paths, and it does not
# say what SIGQUIT means.
python
import re

import gdb
from gdb.FrameDecorator import FrameDecorator


class Frame(FrameDecorator):
    """A frame under the name that the kernel's own reports have for it: line tables have no paths."""

    def function(self):
        frame = self.inferior_frame()
        symbol = None if frame.type() == gdb.INLINE_FRAME else self.symbol(frame)
        if symbol is None:
            return super().function()
        return "<trap> " + symbol if frame.type() == gdb.SIGTRAMP_FRAME else symbol

    @staticmethod
    def symbol(frame):
        newer = frame.newer()
        while newer is not None and newer.type() == gdb.INLINE_FRAME:
            newer = newer.newer()
        # A call of a function that never returns can be the last instruction: what follows belongs to somebody else.
        called = newer is not None and newer.type() != gdb.SIGTRAMP_FRAME
        address = frame.pc() - 1 if called else frame.pc()
        said = gdb.execute(f"info symbol {address:#x}", to_string=True)
        found = re.match(r"(.*?)(?: \+ \d+)? in section ", said)
        return found and found[1]


class Backtrace:
    """Every frame but the one at address zero, where the entry has each backtrace end."""

    name = "16-os"
    priority = 100
    enabled = True

    def filter(self, frames):
        return (Frame(frame) for frame in frames if frame.inferior_frame().pc() != 0)


class Power:
    """QEMU keeps a machine that is switched off, to be looked at. It calls that a signal, and never answers to `continue`."""

    is_off = False

    @classmethod
    def stopped(cls, event):
        if isinstance(event, gdb.SignalEvent) and event.stop_signal == "SIGQUIT":
            cls.is_off = True
            gdb.write("The kernel has switched the machine off: it can be looked at, and no longer run.\n")

    @classmethod
    def check(cls):
        if cls.is_off:
            raise gdb.GdbError("The machine is off.")


gdb.frame_filters[Backtrace.name] = Backtrace()
gdb.events.stop.connect(Power.stopped)
end

define hook-continue
    python Power.check()
end
