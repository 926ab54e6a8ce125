package ledger

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pfKthread marks a kernel thread in the flags of /proc/PID/stat.
const pfKthread = 0x00200000

// task is one process at one edge.
type task struct {
	// start, in ticks since boot, tells a process from a later one with the
	// same id.
	start  uint64
	kernel bool
	// cpu is in seconds.
	cpu float64
}

// tasks holds all processes by id.
type tasks map[int]task

// readTasks reads every process. One that ends meanwhile is left out.
func readTasks() (tasks, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(tasks, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if t, err := readTask(pid); err == nil {
			all[pid] = t
		}
	}
	return all, nil
}

func readTask(pid int) (task, error) {
	cpu, err := processClock(pid)
	if err != nil {
		return task{}, err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return task{}, err
	}
	t, err := parseTask(string(text))
	t.cpu = cpu
	return t, err
}

// parseTask reads /proc/PID/stat. The name, in brackets, may hold anything,
// brackets and spaces too; the fields count from behind the last one.
func parseTask(text string) (task, error) {
	const flags, start = 9 - 3, 22 - 3 // proc(5) counts from 1; the state, third, comes first here
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) <= start {
		return task{}, fmt.Errorf("parse process %.20q: %d fields", text, len(fields))
	}
	f, err := strconv.ParseUint(fields[flags], 10, 64)
	if err != nil {
		return task{}, fmt.Errorf("parse process flags: %w", err)
	}
	s, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return task{}, fmt.Errorf("parse process start: %w", err)
	}
	return task{start: s, kernel: f&pfKthread != 0}, nil
}

// processClock reads another process's CPU clock, in seconds. The clock's id
// is made from the process's as clock_getcpuclockid(3) does it.
func processClock(pid int) (float64, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	return float64(ts.Nano()) / 1e9, nil
}

// rest sums what all processes but the parties' spent between two edges, and
// counts those that ended, whose last share nobody can tell.
func rest(a, b tasks, party map[int]bool) (kernel, other float64, lost int) {
	for pid, now := range b {
		if party[pid] {
			continue
		}
		cpu := now.cpu
		if before, ok := a[pid]; ok && before.start == now.start {
			cpu = rise(before.cpu, now.cpu)
		}
		if now.kernel {
			kernel += cpu
		} else {
			other += cpu
		}
	}
	for pid, before := range a {
		if now, ok := b[pid]; !party[pid] && (!ok || now.start != before.start) {
			lost++
		}
	}
	return kernel, other, lost
}
