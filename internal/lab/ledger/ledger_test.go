package ledger

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/cgroup"
	"fairlead/internal/child"
	"fairlead/internal/lab/result"
	"fairlead/test/process"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{"burn": burn, "idle": idle})
	os.Exit(m.Run())
}

// burn is a child that uses 0.3 s of CPU time, reports that, and then waits for
// its standard input to close.
func burn() int {
	for {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) != nil {
			return 1
		}
		if ts.Nano() > int64(300*time.Millisecond) {
			return idle()
		}
	}
}

// idle is a child that only waits.
func idle() int {
	process.Ready()
	return process.Idle()
}

func newGroups(t *testing.T) *Groups {
	t.Helper()
	g, err := NewGroups(strings.ReplaceAll(t.Name(), "/", "."))
	if errors.Is(err, cgroup.ErrNone) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestTimeIsAssignedToTheParty(t *testing.T) {
	t.Run("by cgroup", func(t *testing.T) {
		g := newGroups(t)
		w, err := Begin(g.Parties())
		if err != nil {
			t.Fatal(err)
		}
		process.Start(t, "burn", nil, child.Place{Cgroup: g.Server})
		l, _, err := w.End()
		if err != nil {
			t.Fatal(err)
		}
		checkBurnt(t, l, l.Server)
		if l.Client != 0 || l.Proxy != 0 {
			t.Errorf("client used %g s and proxy %g s, want 0", l.Client, l.Proxy)
		}
	})
	t.Run("by process", func(t *testing.T) {
		w, err := Begin(Parties{})
		if err != nil {
			t.Fatal(err)
		}
		p := process.Start(t, "burn", nil, child.Place{})
		w.parties.Proxy.PIDs = []int{p.Cmd.Process.Pid}
		l, _, err := w.End()
		if err != nil {
			t.Fatal(err)
		}
		checkBurnt(t, l, l.Proxy)
	})
	t.Run("no parties", func(t *testing.T) {
		w, err := Begin(Parties{})
		if err != nil {
			t.Fatal(err)
		}
		process.Start(t, "burn", nil, child.Place{})
		l, _, err := w.End()
		if err != nil {
			t.Fatal(err)
		}
		checkBurnt(t, l, l.Proxy) // without cgroups, other children count as the proxy
	})
	t.Run("in a cgroup below the party's", func(t *testing.T) {
		g := newGroups(t)
		if err := os.Mkdir(g.Server.Name()+"/below", 0o755); err != nil {
			t.Fatal(err)
		}
		below, err := os.Open(g.Server.Name() + "/below")
		if err != nil {
			t.Fatal(err)
		}
		defer below.Close()
		w, err := Begin(g.Parties())
		if err != nil {
			t.Fatal(err)
		}
		process.Start(t, "burn", nil, child.Place{Cgroup: below})
		l, _, err := w.End()
		if err != nil {
			t.Fatal(err)
		}
		checkBurnt(t, l, l.Server)
		if l.Laboratory > 0.2 {
			t.Errorf("the server's time is in Laboratory too: %+v", l)
		}
	})
	t.Run("of a party that ended", func(t *testing.T) {
		g := newGroups(t)
		w, err := Begin(g.Parties())
		if err != nil {
			t.Fatal(err)
		}
		p := process.Start(t, "burn", nil, child.Place{Cgroup: g.Client})
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		l, _, err := w.End()
		if err != nil {
			t.Fatal(err)
		}
		checkBurnt(t, l, l.Client)
		if l.Laboratory > 0.2 {
			t.Errorf("the client's time is in Laboratory too: %+v", l)
		}
	})
}

// checkBurnt checks that the time includes that of a child in the role burn. It
// tolerates additional time and other load.
func checkBurnt(t *testing.T, l result.Ledger, got float64) {
	t.Helper()
	if got < 0.3 {
		t.Errorf("attributed %.3f s of 0.3 s: %+v", got, l)
	}
	checkClosed(t, l)
}

// checkClosed checks the ledger's two identities.
func checkClosed(t *testing.T, l result.Ledger) {
	t.Helper()
	for what, pair := range map[string][2]float64{
		"columns": {l.User + l.System + l.IRQ + l.Soft + l.Steal, l.Busy},
		"wall":    {l.Busy + l.Idle, l.Wall * float64(l.CPUs)},
		"attributions": {l.Client + l.Server + l.Proxy + l.KernelThread + l.Laboratory + l.Other + l.Unattributed,
			l.Busy},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-6 {
			t.Errorf("%s sum to %g, want %g: %+v", what, pair[0], pair[1], l)
		}
	}
}

// stat builds the text of /proc/stat for two CPUs.
func stat(columns string) string {
	return "cpu  " + columns + "\ncpu0 1 1\ncpu1 1 1\nintr 5 0 1\nctxt 7\nbtime 1\n"
}

func TestMachineTime(t *testing.T) {
	const before = "1000 100 500 8000 200 10 40 20 300 30"
	for name, tt := range map[string]struct {
		after string // 5 s later on two CPUs: 1000 ticks
		want  spent
	}{
		"all columns": {
			after: "1200 200 600 8350 250 30 70 170 300 30",
			want:  spent{user: 3, system: 1, irq: 0.2, soft: 0.3, steal: 1.5, idle: 4, busy: 6, sampled: 6},
		},
		"user time includes virtual machines": {
			after: "1400 100 500 8600 200 10 40 20 700 30",
			want:  spent{user: 4, idle: 6, busy: 4, sampled: 4},
		},
		"iowait decreases in favour of idle": {
			after: "1400 100 500 8700 100 10 40 20 300 30",
			want:  spent{user: 4, idle: 6, busy: 4, sampled: 4},
		},
		"ticks miss half of the busy time": {
			after: "1100 100 600 8600 200 10 40 20 300 30",
			want:  spent{user: 2, system: 2, idle: 6, busy: 4, sampled: 2},
		},
		"ticks miss all of the busy time": {
			after: "1000 100 500 8900 200 10 40 20 300 30",
			want:  spent{system: 1, idle: 9, busy: 1},
		},
		"idle is rounded up to more than the wall time": {
			after: "1000 100 500 9001 200 10 40 20 300 30",
			want:  spent{idle: 10},
		},
		"steal is measured and not scaled": {
			after: "1100 100 500 8500 200 10 40 120 300 30",
			want:  spent{user: 4, steal: 1, idle: 5, busy: 5, sampled: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := between(mustParse(t, stat(before)), mustParse(t, stat(tt.after)), 5)
			if err != nil {
				t.Fatal(err)
			}
			if !near(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func near(a, b spent) bool {
	for _, d := range []float64{
		a.user - b.user, a.system - b.system, a.irq - b.irq, a.soft - b.soft,
		a.steal - b.steal, a.idle - b.idle, a.busy - b.busy, a.sampled - b.sampled,
	} {
		if math.Abs(d) > 1e-9 {
			return false
		}
	}
	return true
}

func mustParse(t *testing.T, text string) Stat {
	t.Helper()
	s, err := ParseStat(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInvalidStat(t *testing.T) {
	for name, text := range map[string]string{
		"empty":       "",
		"old kernel":  "cpu 1 2 3 4\ncpu0 1 2 3 4\n",
		"no numbers":  "cpu a b c d e f g h\ncpu0 1\n",
		"no CPU line": "cpu 1 2 3 4 5 6 7 8\n",
	} {
		if s, err := ParseStat(strings.NewReader(text)); err == nil {
			t.Errorf("%s: parsed %+v", name, s)
		}
	}
	one, two := mustParse(t, "cpu 1 2 3 4 5 6 7 8\ncpu0 1\n"), mustParse(t, stat("1 2 3 4 5 6 7 8"))
	if _, err := between(one, two, 1); err == nil {
		t.Error("between accepts a changed number of CPUs")
	}
}

func TestParseTask(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want task
	}{
		"kernel thread": {
			"16 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 1 1117 0 0 20 0 1 0 28 0 0 18446744073709551615 0 0\n",
			task{name: "ksoftirqd/0", start: 28, kernel: true, parent: 2},
		},
		"name with brackets and spaces": {
			"5504 (a) S 1 (b) R 1 5482 3916 0 -1 4194304 103 0 0 0 7 8 150 25 20 0 1 0 64401 3133440 390\n",
			task{name: "a) S 1 (b", start: 64401, parent: 1, reaped: 1.75},
		},
	} {
		if got, err := parseTask(tt.text); err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tt.want)
		}
	}
	if _, err := parseTask("1 (x) S"); err == nil {
		t.Error("parseTask accepts a line without fields")
	}
}

func TestRest(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after tasks
		kernel, other float64
		ended         int
	}{
		"old and new processes, and a party": {
			before: tasks{1: {start: 1, cpu: 5}, 2: {start: 1, kernel: true, cpu: 1}, 9: {start: 1, cpu: 1}},
			after: tasks{1: {start: 1, cpu: 5.5}, 2: {start: 1, kernel: true, cpu: 1.25}, 9: {start: 1, cpu: 100},
				3: {start: 7, cpu: 2}},
			kernel: 0.25, other: 2.5,
		},
		"a process that started and ended was reaped by its parent": {
			before: tasks{1: {start: 1, reaped: 4}},
			after:  tasks{1: {start: 1, reaped: 4.5}},
			other:  0.5,
		},
		"the time before the window of ended processes is subtracted": {
			before: tasks{1: {start: 1}, 2: {start: 2, parent: 1, cpu: 10, reaped: 5},
				3: {start: 3, parent: 2, cpu: 1}},
			after: tasks{1: {start: 1, reaped: 16.25}},
			other: 0.25, ended: 2,
		},
		"a process that ended was not reaped": {
			before: tasks{1: {start: 1, cpu: 1}, 2: {start: 2, parent: 1, cpu: 10}},
			after:  tasks{1: {start: 1, cpu: 1.5}},
			other:  0.5, ended: 1,
		},
		"a process id is reused": {
			before: tasks{3: {start: 7, cpu: 9}},
			after:  tasks{3: {start: 8, cpu: 0.125}},
			other:  0.125, ended: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := rest(tt.before, tt.after, map[int]bool{9: true}, func(int) bool { return false })
			if got.kernel != tt.kernel || got.other != tt.other || got.ended != tt.ended {
				t.Errorf("%+v; want kernel %g, other %g, %d ended", got, tt.kernel, tt.other, tt.ended)
			}
		})
	}
}

func TestGroupsAreRemovedWithRunningProcesses(t *testing.T) {
	g := newGroups(t)
	dead := process.Start(t, "idle", nil, child.Place{Cgroup: g.Client})
	live := process.Start(t, "idle", nil, child.Place{Cgroup: g.Proxy})
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	<-live.Done()
	if _, err := os.Stat(g.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s still exists: %v", g.path, err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestSweepRemovesAbandonedGroups(t *testing.T) {
	g := newGroups(t)
	dead := exec.Command("/bin/true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pidNamespace()
	if err != nil {
		t.Fatal(err)
	}
	name, reused := groupName(dead.Process.Pid, 1, pids, "gone"), groupName(os.Getpid(), 1, pids, "reused")
	elsewhere := groupName(dead.Process.Pid, 1, pids+1, "elsewhere")
	t.Cleanup(func() { _ = os.Remove(root + "/" + elsewhere) })
	for _, path := range []string{name, name + "/client", reused, elsewhere} {
		if err := os.Mkdir(root+"/"+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := Sweep()
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{name, reused} { // another laboratory may have removed them
		if !gone(root + "/" + left) {
			t.Errorf("Sweep removed %q, but not %s", removed, left)
		}
	}
	if _, err := os.Stat(g.path); err != nil {
		t.Errorf("Sweep removed the cgroups of this process: %v", err)
	}
	if _, err := os.Stat(root + "/" + elsewhere); err != nil {
		t.Errorf("Sweep removed the cgroup of a laboratory in another PID namespace: %v", err)
	}
}

// TestConcurrentSweeps: laboratories that start at the same time find the same
// cgroups, and none fails because another one has removed them.
func TestConcurrentSweeps(t *testing.T) {
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pidNamespace()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		for n := range 5 {
			path := filepath.Join(root, groupName(os.Getpid(), 1, pids, fmt.Sprintf("beside%d-%d", i, n)), "client")
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := Sweep(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
