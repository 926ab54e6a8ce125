package ledger

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"fairlead/internal/lab/result"
)

// pfKthread marks a kernel thread in the flags of /proc/PID/stat.
const pfKthread = 0x00200000

// task is one process at one edge of the window.
type task struct {
	// name is the command's name, with unprintable characters replaced.
	name string
	// start, in ticks since boot, distinguishes a process from a later one with
	// the same id.
	start  uint64
	kernel bool
	// zombie is true if the process has ended and its parent has not waited for it.
	zombie bool
	parent int
	// cpu is the process's own time, reaped that of the descendants that it has
	// waited for; in seconds.
	cpu, reaped float64
}

// tasks holds all processes by id.
type tasks map[int]task

// readTasks reads every process. It skips processes that end meanwhile.
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
	cpu, err := ProcessTime(pid)
	if err != nil {
		return task{}, err
	}
	text, err := readSmall("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return task{}, err
	}
	t, err := parseTask(text)
	t.cpu = cpu
	return t, err
}

// readSmall reads a file of procfs with at most a kilobyte, with as few system calls as possible: a window's edge reads
// one for each process of the host, while the measured traffic goes on.
func readSmall(name string) (string, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var text [1024]byte
	n, err := unix.Read(fd, text[:])
	return string(text[:max(n, 0)]), err
}

// parseTask parses /proc/PID/stat. The name, in brackets, may contain anything,
// also brackets and spaces; the fields are counted after the last bracket. The
// process's own CPU time is not read here.
func parseTask(text string) (task, error) {
	// proc(5) counts from 1; the state, third, comes first here.
	const parent, flags, childUser, childSystem, start = 4 - 3, 9 - 3, 16 - 3, 17 - 3, 22 - 3
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if len(fields) <= start {
		return task{}, fmt.Errorf("parse process %.20q: %d fields", text, len(fields))
	}
	var v [start + 1]uint64
	for _, i := range []int{parent, flags, childUser, childSystem, start} {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return task{}, fmt.Errorf("parse process %.20q: %w", text, err)
		}
		v[i] = n
	}
	_, name, _ := strings.Cut(text[:max(end, 0)], "(")
	return task{
		name: printable(name), start: v[start], kernel: v[flags]&pfKthread != 0, parent: int(v[parent]),
		reaped: float64(v[childUser]+v[childSystem]) * tick, zombie: fields[0] == "Z",
	}, nil
}

// ProcessTime returns another process's CPU time in seconds. The clock's id is
// computed from the process id as in clock_getcpuclockid(3).
func ProcessTime(pid int) (float64, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	return float64(ts.Nano()) / 1e9, nil
}

// same reports whether a process exists and is the same one.
func (ts tasks) same(pid int, t task) bool {
	now, ok := ts[pid]
	return ok && now.start == t.start
}

// printable replaces characters that a terminal cannot print, because any process
// may choose its name.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
}

// spenders is the time of all processes except the parties between two edges, in
// seconds.
type spenders struct {
	// kernel is kernel threads, self this process, children its children that are
	// no party, other all other processes.
	kernel, self, children, other float64
	// reaped is the time of ended processes that self and its children inherited;
	// these may have been a party's.
	reaped float64
	// ended counts the processes that ended.
	ended int
	// top are the processes with the greatest part of other.
	top []result.Consumer
}

// rest adds up the time of all processes except the parties between two edges.
// ours reports whether a process belongs to this laboratory.
//
// A process's time is added to its parent's when the parent reaps it. So the parent's
// counter contains the time of a process that started and ended in the window. For a
// process that started before the window it also contains the time before the window,
// which is subtracted (debts). A process that ended and was not reaped is not counted.
func rest(a, b tasks, party map[int]bool, ours func(pid int) bool) spenders {
	owed, ended := debts(a, b, party)
	s := spenders{ended: ended}
	for pid, now := range b {
		if party[pid] {
			continue
		}
		var before task
		if b.same(pid, a[pid]) {
			before = a[pid]
		}
		cpu, reaped := rise(before.cpu, now.cpu), rise(before.reaped+owed[pid], now.reaped)
		switch {
		case now.kernel:
			s.kernel += cpu
		case cpu+reaped == 0:
		case pid == os.Getpid():
			s.self, s.reaped = s.self+cpu, s.reaped+reaped
		case ours(pid):
			s.children, s.reaped = s.children+cpu, s.reaped+reaped
		default:
			s.other += cpu + reaped
			s.top = append(s.top, result.Consumer{PID: pid, Command: now.name, Seconds: cpu + reaped})
		}
	}
	slices.SortFunc(s.top, func(x, y result.Consumer) int {
		return cmp.Or(cmp.Compare(y.Seconds, x.Seconds), cmp.Compare(x.PID, y.PID))
	})
	s.top = s.top[:min(len(s.top), topConsumers)]
	return s
}

// topConsumers is how many other processes a ledger names.
const topConsumers = 3

// owner returns a function that reports whether a process belongs to this
// laboratory: it is a descendant of this process, or is in a cgroup of the
// laboratory, as a process may be whose parent has ended.
func (ts tasks) owner() func(pid int) bool {
	self := os.Getpid()
	group := fmt.Sprintf("/%s%d-%d-", prefix, self, ts[self].start)
	return func(pid int) bool {
		for at, seen := pid, 0; at > 1 && seen < len(ts); at, seen = ts[at].parent, seen+1 {
			if at == self {
				return true
			}
		}
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		return err == nil && strings.Contains(string(text), group)
	}
}

// debts returns what ended processes had used before the first edge, per living
// process that inherited it.
func debts(a, b tasks, party map[int]bool) (owed map[int]float64, ended int) {
	owed = map[int]float64{}
	for pid, t := range a {
		if party[pid] || b.same(pid, t) {
			continue
		}
		ended++
		heir := t.parent
		for p, ok := a[heir]; ok && !b.same(heir, p); p, ok = a[heir] {
			heir = p.parent
		}
		owed[heir] += t.cpu + t.reaped
	}
	return owed, ended
}
