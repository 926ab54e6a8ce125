package ledger

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"fairlead/internal/lab/result"
)

// TestOthersAreNamed: the ledger names a process that is not part of the
// laboratory. Its parent ends, so that it is not a descendant of this process.
func TestOthersAreNamed(t *testing.T) {
	g := newGroups(t)
	loop := exec.Command("sh", "-c",
		`sh -c 'printf "h\033g" > /proc/self/comm; echo $$; read go; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; read end' <&3 &`)
	in, go_, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer go_.Close()
	loop.ExtraFiles = []*os.File{in}
	out, err := loop.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	said.Scan()
	pid, err := strconv.Atoi(said.Text())
	if err != nil {
		t.Fatalf("the process printed %q, want its process id", said.Text())
	}
	w, err := Begin(g.Parties())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := go_.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	said.Scan()
	l, gates, err := w.End()
	if err != nil {
		t.Fatal(err)
	}
	checkClosed(t, l)
	spent, err := ProcessTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	if name := w.begin.tasks[pid].name; name != "h?g" {
		t.Errorf("the command is %q, want %q", name, "h?g")
	}
	spent -= w.begin.tasks[pid].cpu
	if l.Other < 0.9*spent || gates.OtherShare < 0.9*spent/(l.Wall*float64(l.CPUs)) || len(gates.Others) == 0 {
		t.Errorf("want %g s in Other, got %+v (share %g, others %v)", spent, l, gates.OtherShare, gates.Others)
	}
	if l.Laboratory > l.Wall*float64(l.CPUs)/2 {
		t.Errorf("Laboratory is %g s of %g s", l.Laboratory, l.Wall*float64(l.CPUs))
	}
}

// TestBusiestAreNamed: processes of the laboratory are not named.
func TestBusiestAreNamed(t *testing.T) {
	after := tasks{1: {name: "make", reaped: 3}, 2: {name: "sh", cpu: 1}, 3: {name: "cc", cpu: 5},
		4: {name: "ld", cpu: 2}, 5: {name: "ours", cpu: 9}}
	got := rest(tasks{1: {}}, after, nil, func(pid int) bool { return pid == 5 })
	want := []result.Consumer{{PID: 3, Command: "cc", Seconds: 5}, {PID: 1, Command: "make", Seconds: 3},
		{PID: 4, Command: "ld", Seconds: 2}}
	if !slices.Equal(got.top, want) || got.other != 11 || got.children != 9 {
		t.Errorf("got %+v", got)
	}
}
