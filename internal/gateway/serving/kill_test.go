package serving

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/gateway"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
	helper "fairlead/test/process"

	"golang.org/x/sys/unix"
)

// TestKillWithoutCapKill ends a process that has the serving process's user and is stopped, without CAP_KILL, as the
// daemon's unit runs it. The thread that becomes that user ends; this one keeps its user.
func TestKillWithoutCapKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the test needs root, as all tests that make namespaces do")
	}
	pidfd := -1
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: User, Gid: User}, PidFD: &pidfd}
	started, err := child.Start(t.Context(), cmd, child.Place{})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{pid: cmd.Process.Pid, pidfd: os.NewFile(uintptr(pidfd), "sleep"), done: started.Done()}
	defer p.pidfd.Close()
	if err := unix.Kill(p.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := dropKill(); err != nil {
			ended <- err
			return
		}
		if err := sendKill(p.pidfd); !errors.Is(err, unix.EPERM) {
			ended <- errors.Join(errors.New("the thread may signal other users"), err)
			return
		}
		err := p.end()
		if unix.Geteuid() != 0 {
			err = errors.Join(err, errors.New("the calling thread has another user"))
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestKillEndedProcess kills a process that has ended, and whose pidfd is closed.
func TestKillEndedProcess(t *testing.T) {
	pidfd := -1
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	started, err := child.Start(t.Context(), cmd, child.Place{})
	if err != nil {
		t.Fatal(err)
	}
	<-started.Done()
	p := &process{pid: cmd.Process.Pid, pidfd: os.NewFile(uintptr(pidfd), "true"), done: started.Done()}
	if err := p.pidfd.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.kill(); err != nil {
		t.Error(err)
	}
}

// dropKill takes CAP_KILL from the calling thread.
func dropKill() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	all[0].Effective &^= 1 << unix.CAP_KILL
	return unix.Capset(&header, &all[0])
}

// TestPartDoesNotWait: a serving process that is stopped does not keep the controlling process from leaving it to the
// next one, which finds it as it was.
func TestPartDoesNotWait(t *testing.T) {
	opt := optionsAt(t.TempDir())
	life, end := context.WithCancel(t.Context())
	opt.Life = life
	c := begin(t, opt, settings("127.0.0.1:0"), configOf(backend(t, "one")))
	url := "http://" + c.Address("web") + "/"
	pid, _ := c.Processes()
	goOn := helper.Pause(t, pid)
	applied := make(chan error)
	go func() {
		_, err := c.Apply(configOf(backend(t, "two")), nil)
		applied <- err
	}()
	waitUnread(t, c.current.link)
	end()
	if err := <-applied; !errors.Is(err, context.Canceled) {
		t.Errorf("the change of a process that says nothing: %v", err)
	}
	c.Part()
	goOn()
	opt.Life = nil
	next := begin(t, opt, settings("127.0.0.1:0"), configOf(backend(t, "three")))
	if now, _ := next.Processes(); now != pid {
		t.Errorf("the process is %d, want %d", now, pid)
	}
	wantGet(t, url, "200 three")
}

// waitUnread waits until a message was sent that the other end has not read.
func waitUnread(t *testing.T, l *link) {
	t.Helper()
	raw, err := l.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for deadline, unread := time.Now().Add(place.Timeout), 0; unread == 0; time.Sleep(time.Millisecond) {
		failed := raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		if failed != nil || err != nil || time.Now().After(deadline) {
			t.Fatalf("nothing was sent: %v", errors.Join(failed, err))
		}
	}
}

// TestLateChange: a change of a controlling process that has ended, which is read after that of the next one, changes
// nothing.
func TestLateChange(t *testing.T) {
	g, err := gateway.New(settings("127.0.0.1:0"), optionsAt("").Log)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := &server{gateway: g}
	change := func(from int, to string, whole bool) string {
		next := changeOf(new(model.Config), configOf(to))
		next.Whole = whole
		answer, _ := s.answer(request{Apply: &next}, nil, from)
		return answer.Fault
	}
	for _, c := range []struct {
		from        int
		whole, late bool
	}{{0, true, false}, {0, false, false}, {2, true, false}, {0, false, true}, {1, true, true}, {2, false, false}} {
		before := s.config
		fault := change(c.from, "http://127.0.0.1:1", c.whole)
		if (fault != "") != c.late || (s.config == before) != c.late {
			t.Errorf("%+v: %q, and the configuration has changed: %v", c, fault, s.config != before)
		}
	}
}
