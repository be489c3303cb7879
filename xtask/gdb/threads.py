# The threads of 16-os, for gdb: `kernel threads`, `kernel backtrace`. `cargo run -- gdb` and .vscode/launch.json have gdb read this.
#
# The image has no types. Where fields lie is in a table in it, which the compiler filled in: kernel/src/debugger.rs.

import re

import gdb

WORD = 8
# A string or a slice is an address and a length.
SLICE = 2 * WORD
FACT = SLICE + WORD
# Steps of a backtrace at the most: a chain that loops must end.
STEPS = 256
# What the trap vector's call returns to: the next frame is what was interrupted, at exactly that instruction.
TRAP_RETURN = "trap_handled"


def read(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def word(address):
    return int.from_bytes(read(address, WORD), "little")


def text(address):
    return read(word(address), word(address + WORD)).decode(errors="replace")


def symbol(name):
    """The address of a static. Only with C's notation can such a name be part of an expression; gdb may complain of that."""
    said = gdb.execute(f"with language c -- output/x (unsigned long) &'{name}'", to_string=True)
    return int(re.match("0x[0-9a-f]+", said)[0], 16)


def named(address):
    """Where an address is, as reports say it."""
    said = gdb.execute(f"info symbol {address:#x}", to_string=True)
    name, found, _ = said.partition(" in section ")
    return name.replace(" + ", "+") if found else "no symbol"


class Threads:
    """All threads at this moment; everything is stopped."""

    def __init__(self):
        self.facts = {}
        table = symbol("kernel::debugger::LAYOUT")
        for part in range(word(table + WORD)):
            facts = word(table) + SLICE * part
            for number in range(word(facts + WORD)):
                fact = word(facts) + FACT * number
                self.facts[text(fact)] = word(fact + SLICE)
        self.trap_return = symbol(TRAP_RETURN)
        first = symbol("kernel::hart::HARTS")
        up = word(symbol("kernel::hart::COUNT"))
        self.harts = [first + self.facts["from hart to hart"] * cpu for cpu in range(up)]
        part = [(hart + self.facts["hart: scheduling"], hart + self.facts["hart: timer"]) for hart in self.harts]
        self.running = [word(scheduling + self.facts["scheduling: current"]) for scheduling, _ in part]
        self.ready, self.sleeping = [], []
        for scheduling, timer in part:
            self.ready += self.queue(scheduling + self.facts["scheduling: first ready"])
            self.sleeping += self.queue(timer + self.facts["timer: first sleeper"])
        # A hart that has not begun has no idle thread yet.
        idle = [scheduling + self.facts["scheduling: idle"] for scheduling, _ in part]
        self.idle = [thread for thread, running in zip(idle, self.running) if running != 0]
        self.spawned = sorted(self.vector(symbol("kernel::thread::ALL") + self.facts["all threads"]), key=self.id)

    def queue(self, place):
        """The threads of a queue, linked through themselves."""
        found = []
        thread = word(place)
        while thread != 0 and thread not in found:
            found.append(thread)
            thread = word(thread + self.facts["thread: next"])
        return found

    @staticmethod
    def vector(place):
        """What is in a vector of words. Of its three words, in whatever order, one is an address; of the others the length is the lesser."""
        length, _, elements = sorted(word(place + WORD * number) for number in range(3))
        return [word(elements + WORD * number) for number in range(length)]

    def id(self, thread):
        return word(thread + self.facts["thread: id"])

    def name(self, thread):
        return text(thread + self.facts["thread: name"])

    def cpu(self, thread):
        return word(thread + self.facts["thread: home"])

    def hart(self, cpu):
        return word(self.harts[cpu] + self.facts["hart: id"])

    def state(self, thread):
        if thread in self.running:
            return "running"
        if read(thread + self.facts["thread: ending"], 1) != b"\0":
            return "ended"
        if thread in self.ready:
            return "ready"
        if thread in self.sleeping:
            return "sleeping"
        return "idle" if thread in self.idle else "blocked"

    def left_at(self, thread):
        """Where a thread that does not run goes on, and its frame pointer."""
        context = thread + self.facts["thread: context"]
        names = ("context: return address", "context: frame pointer")
        return tuple(word(context + self.facts[name]) for name in names)

    def debugged_as(self, thread):
        """gdb's thread that is the hart which runs a thread. QEMU numbers them from 1."""
        number = self.hart(self.running.index(thread)) + 1
        found = [hart for hart in gdb.selected_inferior().threads() if hart.num == number]
        if not found:
            raise gdb.GdbError(f"gdb does not know hart {number - 1}")
        return found[0]

    def steps(self, thread):
        """The addresses that a backtrace shows: returns, and what a trap interrupted."""
        address, frame = self.left_at(thread)
        exact = False
        for _ in range(STEPS):
            yield address, exact
            if frame == 0 or frame % WORD != 0:
                return
            exact = address == self.trap_return
            address, frame = word(frame - WORD), word(frame - 2 * WORD)
            if address == 0:
                return

    def print_backtrace(self, thread):
        who = f"thread {self.id(thread)} ({self.name(thread)})"
        gdb.write(f"{who}, {self.state(thread)}, CPU {self.cpu(thread)}\n")
        if thread in self.running:
            gdb.execute(f"thread apply {self.debugged_as(thread).num} -q backtrace")
            return
        address, frame = self.left_at(thread)
        if frame == 0:
            gdb.write(f"it has not begun: {named(address)}\n")
            return
        for number, (address, exact) in enumerate(self.steps(thread)):
            # A call of a function that never returns can be the last instruction: what follows belongs to somebody else.
            inside = address if exact else address - 1
            line = gdb.find_pc_line(inside)
            place = f" at {line.symtab.filename}:{line.line}" if line.symtab else ""
            through = "<trap> " if exact else ""
            gdb.write(f"#{number:<3}{address:#018x} in {through}{named(inside).split('+')[0]}{place}\n")


class Kernel(gdb.Command):
    """Looks at the kernel that runs: its threads, and where they are."""

    def __init__(self):
        super().__init__("kernel", gdb.COMMAND_STACK, prefix=True)


class ListThreads(gdb.Command):
    """Lists the kernel's threads: number, name, state, the hart on which each runs, ran last or is to begin, and where it is."""

    def __init__(self):
        super().__init__("kernel threads", gdb.COMMAND_STACK)

    def invoke(self, arguments, from_tty):
        if arguments:
            raise gdb.GdbError("usage: kernel threads")
        threads = Threads()
        gdb.write("  id name             state     CPU hart  at\n")
        for thread in threads.idle + threads.spawned:
            cpu = threads.cpu(thread)
            where = "" if thread in threads.running else named(threads.left_at(thread)[0] - 1).split("+")[0]
            if thread in threads.running:
                where = f"gdb's thread {threads.debugged_as(thread).num}"
            gdb.write(
                f"{threads.id(thread):>4} {threads.name(thread):<16} {threads.state(thread):<9} "
                f"{cpu:>3} {threads.hart(cpu):>4}  {where}\n"
            )


class Backtrace(gdb.Command):
    """Shows the calls that threads of the kernel are in: kernel backtrace ID | idle CPU | all."""

    def __init__(self):
        super().__init__("kernel backtrace", gdb.COMMAND_STACK)

    def invoke(self, arguments, from_tty):
        threads = Threads()
        for thread in self.chosen(threads, gdb.string_to_argv(arguments)):
            threads.print_backtrace(thread)

    @staticmethod
    def chosen(threads, words):
        match words:
            case ["all"]:
                return threads.idle + threads.spawned
            case ["idle", number] if number.isdecimal():
                wanted = int(number)
                found = [thread for thread in threads.idle if threads.cpu(thread) == wanted]
            case [number] if number.isdecimal():
                found = [thread for thread in threads.spawned if threads.id(thread) == int(number)]
            case _:
                raise gdb.GdbError("usage: kernel backtrace ID | idle CPU | all")
        if not found:
            raise gdb.GdbError(f"there is no thread `{' '.join(words)}`; `kernel threads` lists them")
        return found


Kernel()
ListThreads()
Backtrace()
