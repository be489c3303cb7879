# Counts the instructions of xv6's operations from outside: gdb stops the machine where one begins and where it ends, and QEMU's
# count of retired instructions is read at both. results/xv6.md says how it is started.
set pagination off
set confirm off
set width 0
set architecture riscv:rv64

# Goes on to an address.
define to
  tbreak *($arg0)
  continue
end

# The instructions of the next call of a function, from its first until it has returned: $cost.
define cost
  to $arg0
  set $called = $minstret
  to $ra
  set $cost = $minstret - $called
end

target remote gdb
to _entry
set $from = $minstret
to forkret
printf "xv6 boot_to_first_thread %ld\n", $minstret - $from

# Empty lines for the shell: for each it forks a child that exits, and waits for it.
shell yes '' | head -60 > input

set $n = 0
while $n < 5
  to begin_op
  cost acquire
  set $acquire = $cost
  cost release
  printf "xv6 spin_lock %ld: acquire %ld, release %ld\n", $acquire + $cost, $acquire, $cost
  set $n = $n + 1
end

set $n = 0
while $n < 5
  to kalloc
  set $from = $minstret
  set $back = $ra
  cost memset
  to $back
  printf "xv6 frame_alloc_filled %ld, frame_alloc %ld\n", $minstret - $from, $minstret - $from - $cost
  to kfree
  set $from = $minstret
  set $back = $ra
  cost memset
  to $back
  printf "xv6 frame_free_filled %ld, frame_free %ld\n", $minstret - $from, $minstret - $from - $cost
  set $n = $n + 1
end

# From a process to the scheduler, and from there to a process: the first word of a context is where it goes on.
set $n = 0
while $n < 5
  to swtch
  set $from = $minstret
  to *(long*)$a1
  printf "xv6 switch %ld\n", $minstret - $from
  set $n = $n + 1
end

# A child wakes its parent, which waits for it, and ends; the parent goes on where its context says.
set $n = 0
while $n < 5
  to exit
  set $parent = cpus[0].proc->parent
  set $resumed = $parent->context.ra
  tbreak *wakeup if $a0 == (long)$parent
  continue
  set $from = $minstret
  tbreak *$resumed if cpus[0].proc == $parent
  continue
  printf "xv6 wake_to_run %ld\n", $minstret - $from
  set $n = $n + 1
end

# A timer interrupt while nothing runs: the machine's own handler, then the kernel's, until what was interrupted goes on.
set $n = 0
while $n < 5
  to timervec
  set $from = $minstret
  to kernelvec
  set $entry = $minstret
  set $back = $sepc
  cost devintr
  to $back
  printf "xv6 timer_interrupt %ld, of it devintr %ld; from kernelvec on without that %ld\n", $minstret - $from, $cost, $minstret - $entry - $cost
  set $n = $n + 1
end

# Two children that are nearly always ready. One gives up the hart at a tick, and the next in the table of processes, which gave it up
# before, is back behind its own switch; what is left of its call is counted by itself.
shell echo grind > input

# A trap that does nothing: the disk's interrupt, without what is done for the device.
set $n = 0
while $n < 5
  tbreak *kernelvec if ($scause & 255) == 9
  continue
  set $from = $minstret
  set $back = $sepc
  cost devintr
  to $back
  printf "xv6 trap %ld\n", $minstret - $from - $cost
  set $n = $n + 1
end

set $n = 0
while $n < 5
  tbreak *yield if cpus[0].proc[1].state == RUNNABLE && cpus[0].proc[1].context.ra == $resumed
  continue
  set $from = $minstret
  set $next = &cpus[0].proc[1]
  tbreak *$resumed if cpus[0].proc == $next
  continue
  set $there = $minstret - $from
  to yield
  set $back = $ra
  set $same = cpus[0].proc
  tbreak *$resumed if cpus[0].proc == $same
  continue
  set $from = $minstret
  to $back
  printf "xv6 yield %ld: to the next process %ld, and its way back %ld\n", $there + $minstret - $from, $there, $minstret - $from
  set $n = $n + 1
end
kill
