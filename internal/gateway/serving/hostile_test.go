package serving

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hostile begins the value of TMPDIR that makes the role an attacker who has taken over the
// serving process. Its rest is a directory with a socket and a file of root.
const hostile = "hostile:"

// try prints what an attacker has achieved.
func try(what string, err error) {
	if err == nil {
		fmt.Println(what, "succeeded")
	}
}

// unconfined is the TMPDIR of a process that cannot give up its privileges, for errUnconfined.
const unconfined = "unconfined:"

var errUnconfined = errors.New("operation not supported")

// TestUnconfinedProcessSaysWhy starts a process that cannot give up its privileges. It serves no request, and
// the controlling process reports its reason.
func TestUnconfinedProcessSaysWhy(t *testing.T) {
	t.Setenv("TMPDIR", unconfined)
	_, _, err := Start(t.Context(), optionsAt(""), settings("127.0.0.1:0"), configOf("http://127.0.0.1:1"), nil)
	if err == nil || !strings.Contains(err.Error(), "give up privileges: "+errUnconfined.Error()) {
		t.Errorf("start: %v", err)
	}
}

// mainOrHostile is Main, or what an attacker does in its place.
func mainOrHostile() int {
	if dir, ok := os.LookupEnv(sameUser); ok {
		return hostileSameUser(dir)
	}
	if os.Getenv("TMPDIR") == unconfined {
		return serve(errUnconfined, nil)
	}
	dir, ok := strings.CutPrefix(os.Getenv("TMPDIR"), hostile)
	if !ok {
		return Main()
	}
	if err := confine(); err != nil {
		fmt.Println(err)
		return 1
	}
	_, err := net.Dial("unix", filepath.Join(dir, "docker.sock"))
	try("connect to Docker's socket", err)
	_, err = os.ReadFile(filepath.Join(dir, "secret"))
	try("read a file of root", err)
	try("write a file of root", os.WriteFile(filepath.Join(dir, "secret"), nil, 0))
	try("become root", syscall.Setuid(0))
	try("mount", unix.Mount("none", dir, "tmpfs", 0, ""))
	try("make a network namespace", unix.Unshare(unix.CLONE_NEWNET))
	_, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	try("open a packet socket", err)
	try("trace the controlling process", unix.PtraceAttach(os.Getppid()))
	try("kill the controlling process", unix.Kill(os.Getppid(), 0))
	_, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid()))
	try("read the controlling process's environment", err)
	fmt.Println("done", os.Getenv("SECRET_TOKEN"))
	return 0
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run the test as root: only root starts processes of other users")
	}
}

// TestHostileServingProcess: an attacker in the serving process reaches nothing of root's.
func TestHostileServingProcess(t *testing.T) {
	needRoot(t)
	dir := filesOfRoot(t)
	t.Setenv("TMPDIR", hostile+dir)
	t.Setenv("SECRET_TOKEN", "leaked")
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	opt := optionsAt("")
	opt.Stdout = theirs
	p, err := launch(opt)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(ours)
	if <-p.done; err != nil || string(said) != "done \n" {
		t.Errorf("the attacker: %q %v", said, err)
	}
}

// filesOfRoot returns a directory with a socket and a file that only root may open.
func filesOfRoot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) { // only the files stop others
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "log.sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	l, err := net.Listen("unix", filepath.Join(dir, "docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(filepath.Join(dir, "docker.sock"), 0o660); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPrivileges reads what the kernel says of a serving process, on all of its threads.
func TestPrivileges(t *testing.T) {
	needRoot(t)
	t.Setenv("SECRET_TOKEN", "leaked")
	c := begin(t, optionsAt(""), settings("127.0.0.1:0"), configOf(backend(t, "one")))
	wantGet(t, "http://"+c.Address("web"), "200 one")
	pid, _ := c.Processes()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	user := strings.Repeat("\t"+strconv.Itoa(User), 4)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Uid:" + user, "Gid:" + user, "Groups:\t ", "NoNewPrivs:\t1",
			"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
			"CapAmb:\t0000000000000000"} {
			if !bytes.Contains(text, []byte(want+"\n")) {
				t.Errorf("%s lacks %q:\n%s", path, want, text)
			}
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(environ, []byte("FAIRLEAD_ROLE=gateway")) ||
		bytes.Contains(environ, []byte("leaked")) {
		t.Errorf("environment: %q %v", environ, err)
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(name) != processName+"\n" {
		t.Errorf("name: %q %v", name, err)
	}
}
