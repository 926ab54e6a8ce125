package systemd_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
	"fairlead/test/compiled"
	"fairlead/test/systemd"

	"golang.org/x/sys/unix"
)

const (
	timeout = time.Minute
	// commandLimit is how long a command beside the service may take: longer than the daemon waits for a process
	// of its own that does not answer.
	commandLimit = 90 * time.Second
	// request sends its input, and then waits for the answer. Without the flags socat waits for
	// only half a second.
	request = "socat -t 60 -T 60 -"
)

// started does what a service manager does for the service: it mounts as for ProtectSystem=strict,
// then runs the command with only the unit's capabilities and system calls. It is process 1 of a
// PID namespace.
const started = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mkdir /run/fairlead /run/state
mount --bind /run/fairlead /run/fairlead
mount --bind /run/state /run/state
for box in shop peer; do ip netns add $box; ip -n $box link set lo up; done
ip link set lo up
setpriv --reuid 65534 --clear-groups unshare --user --map-current-user --net sleep infinity 3>&- 4>&- &
echo $! >/run/theirs
ip netns exec shop socat TCP6-LISTEN:80,ipv6-v6only=0,fork,reuseaddr EXEC:"echo hello" 3>&- 4>&- &
setpriv --reuid 65534 --clear-groups socat TCP-LISTEN:9000,fork EXEC:cat 3>&- 4>&- &
mount -o remount,bind,ro /run
mount -o remount,bind,ro /
export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=admin:docker WATCHDOG_PID=$$ WATCHDOG_USEC=500000
exec setpriv --bounding-set "$CAPS" --no-new-privs filter $SYSCALLS -- $COMMAND --state-dir /run/state \
	--metrics unix:/run/fairlead/metrics.sock --metrics-group 65534
`

// service is the daemon as the unit runs it.
type service struct {
	*testing.T
	process  *child.Process
	socket   string
	docker   string
	log      *os.File
	messages *net.UnixConn
	path     string
}

// start starts the service with further flags of the daemon.
func start(t *testing.T, flags ...string) *service {
	t.Helper()
	unit, err := systemd.Read("../../packaging/systemd/fairlead.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &service{T: t, socket: filepath.Join(dir, "admin"), path: dir + ":" + os.Getenv("PATH")}
	if err := compiled.Fairlead(filepath.Join(dir, "fairlead")); err != nil {
		t.Fatal(err)
	}
	buildFilter(t, dir)
	s.docker = filepath.Join(dir, "docker")
	var external []*os.File
	for _, path := range []string{s.socket, s.docker} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close(); l.Close() })
		external = append(external, f)
	}
	if s.messages, err = net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.messages.Close() })
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.log.Close() })
	var st unix.Stat_t
	if err := unix.Fstat(int(s.log.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	command := strings.TrimPrefix(unit["ExecStart"], "/usr/bin/")
	command = strings.ReplaceAll(command, "$DAEMON_FLAGS", strings.Join(flags, " "))
	cmd := exec.Command("sh", "-c", started)
	cmd.Env = []string{"PATH=" + s.path, "CAPS=" + unit.BoundingSet(), "SYSCALLS=" +
		strings.Join(systemCalls(t, unit), " "), "COMMAND=" + command,
		"NOTIFY_SOCKET=" + filepath.Join(dir, "notify"),
		fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)}
	cmd.ExtraFiles, cmd.Stderr = external, s.log
	ctx, cancel := context.WithCancel(context.Background())
	if s.process, err = child.Start(ctx, cmd, child.Place{Netns: ns.File(), Contained: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-s.process.Done() })
	return s
}

// buildFilter builds the program that restricts a command's system calls.
func buildFilter(t *testing.T, dir string) {
	t.Helper()
	build := exec.Command("gcc", "-Wall", "-Werror", "-o", filepath.Join(dir, "filter"), "testdata/filter.c",
		"-lseccomp")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the filter: %v\n%s", err, out)
	}
}

// systemCalls returns the system calls that the unit allows.
func systemCalls(t *testing.T, unit systemd.Unit) []string {
	t.Helper()
	groups, err := exec.Command("systemd-analyze", "syscall-filter").Output()
	if err != nil {
		t.Fatalf("list groups of system calls: %v", err)
	}
	calls, err := unit.SystemCalls(string(groups))
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// await waits until the service manager has received all of these messages.
func (s *service) await(want ...string) {
	s.Helper()
	if err := s.messages.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		s.Fatal(err)
	}
	var all []string
	buf := make([]byte, 4096)
	for len(want) > 0 {
		n, err := s.messages.Read(buf)
		if err != nil {
			s.Fatalf("the service manager received %q, not %q: %v\n%s", all, want, err, s.logged())
		}
		for line := range strings.Lines(string(buf[:n]) + "\n") {
			all = append(all, strings.TrimSpace(line))
			for i, w := range want {
				if strings.TrimSpace(line) == w {
					want = append(want[:i:i], want[i+1:]...)
					break
				}
			}
		}
	}
}

func (s *service) logged() string {
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		s.Error(err)
	}
	return string(text)
}

// run runs a command line beside the service, as root with all capabilities. The command is ended after commandLimit.
func (s *service) run(line string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", fmt.Sprint(s.process.Cmd.Process.Pid), "-n", "-m", "-p", "--",
		"sh", "-c", line)
	cmd.Env = []string{"PATH=" + s.path, "FAIRLEAD_SOCKET=" + s.socket}
	cmd.WaitDelay = time.Second // a program that the command has started may have its output open
	out, err := cmd.CombinedOutput()
	return string(out), cmp.Or(ctx.Err(), err)
}

// says runs a command line, which must print the words.
func (s *service) says(line, words string) {
	s.Helper()
	if out, err := s.run(line); err != nil || !strings.Contains(out, words) {
		s.Errorf("%s: %v: %s; want %q\n%s", line, err, out, words, s.logged())
	}
}

// stop ends the service with SIGTERM.
func (s *service) stop() {
	s.Helper()
	if err := s.process.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	s.await("STOPPING=1")
	select {
	case <-s.process.Done():
	case <-time.After(2 * commandLimit):
		s.Fatalf("the daemon has not ended after SIGTERM:\n%s", s.logged())
	}
	if err := s.process.Wait(); err != nil {
		s.Errorf("%v\n%s", err, s.logged())
	}
}

// TestUnitIsSufficient runs the daemon with the permissions of the unit: it uses the passed
// sockets, notifies the service manager, serves metrics to a group, attaches, and publishes in every mode.
func TestUnitIsSufficient(t *testing.T) {
	s := start(t, "--teardown")
	// The socket exists before the daemon runs: clients wait.
	s.says("fairlead network create web --subnet 172.30.0.0/24 --subnet fd00:30::/64", "")
	s.await("READY=1", "STATUS=0 attachments, 0 publishes", "WATCHDOG=1")
	s.says("printf 'POST /Plugin.Activate HTTP/1.0\\r\\n\\r\\n' | "+request+" UNIX-CONNECT:"+s.docker, "NetworkDriver")
	s.says("stat -c '%g %a' /run/fairlead/metrics.sock", "65534 660")
	s.says("chrt --all-tasks --pid $(cat /run/fairlead/pid)", "SCHED_RR")
	s.says("fairlead attach web shop", "172.30.0.2")
	s.says("fairlead attach web peer", "172.30.0.3")
	s.says("fairlead attach web $(cat /run/theirs) --name theirs", "172.30.0.4")
	for port, via := range map[int]string{81: "proxy", 82: "nat", 83: "ebpf"} {
		s.says(fmt.Sprintf("fairlead publish shop %d:80 --via %s", port, via), via)
		s.says(fmt.Sprintf("ip netns exec peer %s TCP:172.30.0.1:%d,connect-timeout=60 </dev/null", request, port),
			"hello")
		s.says(fmt.Sprintf("ip netns exec peer %s TCP:[fd00:30::1]:%d,connect-timeout=60 </dev/null", request, port),
			"hello")
	}
	s.await("STATUS=3 attachments, 3 publishes")
	if out, err := s.run("fairlead publish shop 9000:80 --via proxy"); err == nil || !strings.Contains(out, "socat") {
		t.Errorf("a port in use by another user's process: %v: %s; want the process's name", err, out)
	}
	s.stop()
	if _, err := os.Stat(s.socket); err != nil {
		t.Errorf("the service manager's socket was removed: %v", err)
	}
	for line := range strings.Lines(s.logged()) {
		if !strings.HasPrefix(line, "<6>msg=") {
			t.Errorf("the journal receives %q", line)
		}
	}
}

// TestSystemdAcceptsUnits runs systemd-analyze verify.
func TestSystemdAcceptsUnits(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"fairlead.service", "fairlead.socket", "fairlead-docker.socket"} {
		text, err := os.ReadFile("../../packaging/systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// The binary and its man pages are not installed on the test machine.
		unit := strings.ReplaceAll(strings.ReplaceAll(string(text), "/usr/bin/fairlead", "/bin/true"), "man:",
			"file:///")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.Command("systemd-analyze", "verify", filepath.Join(dir, "fairlead.socket"),
		filepath.Join(dir, "fairlead-docker.socket"), filepath.Join(dir, "fairlead.service"))
	if out, err := verify.CombinedOutput(); err != nil || strings.Contains(string(out), "fairlead") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestForbiddenSystemCalls checks that the filter kills commands that make a forbidden system call.
// The daemon runs under the same filter, and so makes none.
func TestForbiddenSystemCalls(t *testing.T) {
	unit, err := systemd.Read("../../packaging/systemd/fairlead.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	buildFilter(t, dir)
	calls := append(systemCalls(t, unit), "--")
	for command, killed := range map[string]bool{"true": false, "chroot / true": true, "mount -t tmpfs none " +
		dir: true} {
		cmd := exec.Command(filepath.Join(dir, "filter"), append(slices.Clone(calls), strings.Fields(command)...)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if got := status.Signaled() && status.Signal() == syscall.SIGSYS; got != killed || !killed && err != nil {
			t.Errorf("%s: %v: %s; want killed: %v", command, err, out, killed)
		}
	}
}

// exposure is the highest exposure that systemd may report, in tenths. The unit explains what the
// daemon needs.
const exposure = "42"

// TestExposure checks the exposure that systemd-analyze security reports for the service.
func TestExposure(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold="+exposure,
		"../../packaging/systemd/fairlead.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v: want at most %s tenths:\n%s", err, exposure, out)
	}
}
