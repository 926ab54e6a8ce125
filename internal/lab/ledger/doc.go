// Package ledger accounts for the CPU time of a measured window: all busy time of
// the machine is assigned to the client, the server, the proxy, kernel threads or
// others, and the remainder is shown. It does not run the workload or decide which
// windows count.
//
// # Theory of operation
//
// At both edges the same values are read in the same order, so that each reading
// spans the same length of time:
//
//	/proc/stat             what the whole machine did, in 10 ms ticks
//	cgroup v2 cpu.stat     what each party spent, in µs (no controller needed)
//	every process's clock  kernel threads and all other processes, in ns
//
// A process's clock is CLOCK_PROCESS_CPUTIME_ID of another process: one
// system call returns nanoseconds for all threads, including those that have
// ended. (The file /proc/PID/schedstat shows the main thread only, and the ticks
// of /proc/PID/stat are a hundred thousand times coarser.) Without
// cgroup v2 the parties are read in the same manner; a process that they start
// then counts as other load. The time of processes that start and end within the
// window is in the counters for reaped children of their parents, in ticks.
//
// Busy is the wall time of all CPUs less their idle time, not the sum of the
// busy columns. On a kernel with CONFIG_NO_HZ the idle columns are measured
// in nanoseconds and only printed in ticks. But user, system, irq and softirq
// are sampled by the timer tick, which rarely runs on a CPU that sleeps between
// packets: with a request/response load the columns can miss half of the time
// that was used. So the busy time (without steal, which is measured) is split in
// the proportions of the columns.
//
// With CONFIG_IRQ_TIME_ACCOUNTING off, which is common, an interrupt and its
// softirq are charged to the task that they interrupt. So the time to receive a
// packet may be charged to any running task, which is mostly but not always a
// party to the traffic. On an idle CPU they interrupt no task. That time, and
// the time to enter and leave the idle state, is busy and belongs to no task. It
// is most of Unattributed, and grows with the number of times that a CPU wakes
// up. The rest is processes that ended and were not reaped, and rounding.
//
// Processes that do not belong to the laboratory are Other, and the busiest of
// them are named (Gates.Others). The laboratory itself and its children that are
// no party are Laboratory. A process belongs to the laboratory by its ancestors,
// or by its cgroup. Without interrupt accounting, softirq work of the path that
// interrupted another process is in Other, and that process's softirq work may be
// in a party. This error is small while Other is small, which is one reason why
// the runner limits it. In a separate PID namespace the laboratory does not see
// the host's processes, and their time is in Unattributed.
//
// Linux only.
package ledger
