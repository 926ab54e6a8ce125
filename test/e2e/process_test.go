package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// timeout limits every wait of a test; no test depends on how much of it is used.
const timeout = 4 * time.Minute

// outcome is the exit code and the output of a command.
type outcome struct {
	code           int
	stdout, stderr string
}

// process is a running command.
type process struct {
	room        *room
	cmd         *exec.Cmd
	out, errors bytes.Buffer
}

// start starts the program in the room.
func (r *room) start(args ...string) *process {
	r.t.Helper()
	p := &process{room: r, cmd: r.command(append([]string{binary}, args...)...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
	p.launch()
	return p
}

func (p *process) launch() {
	p.room.t.Helper()
	// Children keep the pipes open. The snapshot finds processes that outlive the program; they
	// must not block Wait.
	p.cmd.WaitDelay = timeout
	if err := p.cmd.Start(); err != nil {
		p.room.t.Fatal(err)
	}
	p.room.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
}

// wait waits for the end of the program and returns its outcome.
func (p *process) wait() outcome {
	p.room.t.Helper()
	hang := time.AfterFunc(timeout, func() { _ = p.cmd.Process.Kill() })
	defer hang.Stop()
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.room.t.Fatal(err)
	}
	code := p.cmd.ProcessState.ExitCode()
	return outcome{code, p.out.String(), p.errors.String()}
}

func (p *process) signal(s syscall.Signal) {
	p.room.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.room.t.Fatal(err)
	}
}

// run runs the program to its end.
func (r *room) run(args ...string) outcome {
	r.t.Helper()
	return r.start(args...).wait()
}

// succeed runs the program, which must exit 0, and returns its output.
func (r *room) succeed(args ...string) string {
	r.t.Helper()
	o := r.run(args...)
	if o.code != 0 {
		r.t.Fatalf("fairlead %s exits %d:\n%s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// undisturbed runs the program, and again while the machine is too busy, which makes runs invalid
// for reasons outside the program and the test. The report is in the file.
func (r *room) undisturbed(file string, args ...string) outcome {
	r.t.Helper()
	const tries = 10
	for try := 1; ; try++ {
		o := r.run(append(args, "--json", r.file(file))...)
		if try == tries || o.code > 1 {
			return o
		}
		why := r.disturbance(r.read(file))
		if why == "" {
			return o
		}
		r.t.Logf("measured again: %s", why)
	}
}

// disturbance returns why a report must be measured again, or "": another program through which all packets pass got no
// CPU time for seconds, or one that answers got none in the whole window, or the CPU time of a gateway cannot be known,
// because the clocks contradict each other. Load of others, also of the hypervisor, makes no run invalid, because the
// room sets FAIRLEAD_LAB_SHARED.
func (r *room) disturbance(report []byte) string {
	r.t.Helper()
	for _, x := range decode(r.t, report).Runs {
		l := x.Ledger
		if x.Workload == "http-rr" && len(l) > 0 && (l["busy"]-l["other"]-l["laboratory"] <= l["steal"] ||
			strings.HasPrefix(x.Path, "gateway:") && l["proxy"] <= 0) {
			return x.Path + ": the CPU time of the path cannot be known"
		}
		for _, why := range x.Invalid {
			peer := x.Path == "slirp4netns" || x.Path == "pasta"
			if peer && strings.Contains(why, "no answer from") || strings.Contains(why, "path: CPU time of ") ||
				why == "no request was answered in the window" {
				return x.Path + ": " + why
			}
		}
	}
	return ""
}

// refuse runs the program, which must exit with the code and print each of the words to standard
// error.
func (r *room) refuse(code int, words []string, args ...string) {
	r.t.Helper()
	o := r.run(args...)
	o.expect(r.t, code, words)
}

func (o outcome) expect(t *testing.T, code int, words []string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exits %d, want %d:\n%s", o.code, code, o.stderr)
	}
	for _, w := range words {
		if !strings.Contains(o.stderr, w) {
			t.Errorf("standard error does not contain %q:\n%s", w, o.stderr)
		}
	}
}

// descendant is a process that a command of the room started.
type descendant struct {
	pid     int
	cmdline string
	// ticks is the CPU time that it has used, in clock ticks.
	ticks uint64
}

// processes finds the descendants of the program through the room's mark in their environment.
func (r *room) processes() []descendant {
	var found []descendant
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(dir + "/environ")
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), r.mark) {
			continue
		}
		if d, ok := readProcess(dir); ok {
			found = append(found, d)
		}
	}
	return found
}

// readProcess reads one process; a zombie does not count.
func readProcess(dir string) (descendant, bool) {
	pid, _ := strconv.Atoi(filepath.Base(dir))
	cmdline, err1 := os.ReadFile(dir + "/cmdline")
	stat, err2 := os.ReadFile(dir + "/stat")
	if err1 != nil || err2 != nil || len(cmdline) == 0 {
		return descendant{}, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseUint(fields[11], 10, 64)
	system, _ := strconv.ParseUint(fields[12], 10, 64)
	return descendant{pid, strings.ReplaceAll(string(cmdline), "\x00", " "), user + system}, true
}

// until waits for the descendants to reach a state.
func (r *room) until(what string, reached func([]descendant) bool) {
	r.t.Helper()
	for deadline := time.Now().Add(timeout); !reached(r.processes()); {
		if time.Now().After(deadline) {
			r.t.Fatalf("timeout while waiting until %s; processes: %s", what, fmt.Sprint(r.processes()))
		}
		time.Sleep(20 * time.Millisecond) // each look reads all processes of the machine
	}
}

// measuring waits until the program is in the middle of a run: a generator has used more CPU time
// than its start needs.
func (p *process) measuring() {
	p.room.t.Helper()
	p.room.until("traffic flows", func(all []descendant) bool {
		return slices.ContainsFunc(all, func(d descendant) bool {
			return strings.HasPrefix(d.cmdline, generator) && d.ticks > 20
		})
	})
}

// generator is the name of the generator's processes.
const generator = "fairlead-load"
