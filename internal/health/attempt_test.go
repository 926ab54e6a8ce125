package health

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/model"
)

// port is the port of a fake real server. Each test sets how it answers connections.
type port struct {
	*Monitor
	mu sync.Mutex
	// answer is called with the number of each connection. It returns nil to accept
	// the connection.
	answer func(ctx context.Context, n int) error
	// dialled has the time of each attempt to connect. under is the number of
	// attempts in progress, and most the largest number at the same time.
	dialled     []time.Time
	under, most int
	down        chan time.Time
}

func (p *port) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.mu.Lock()
	p.dialled = append(p.dialled, time.Now())
	n, answer := len(p.dialled), p.answer
	p.under++
	p.most = max(p.most, p.under)
	p.mu.Unlock()
	err := answer(ctx, n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under--
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	return near, far.Close()
}

func (p *port) become(answer func(ctx context.Context, n int) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// times returns the times of the attempts to connect, relative to the first one.
func (p *port) times() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []time.Duration
	for _, at := range p.dialled {
		all = append(all, at.Sub(p.dialled[0]))
	}
	return all
}

func answers(context.Context, int) error { return nil }

func silent(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// slowly answers after a delay.
func slowly(after time.Duration) func(ctx context.Context, n int) error {
	return func(ctx context.Context, _ int) error {
		select {
		case <-time.After(after):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// atPort runs a test with a monitor that checks one such server via TCP, with
// simulated time (synctest).
func atPort(t *testing.T, c model.Check, answer func(ctx context.Context, n int) error,
	test func(t *testing.T, p *port)) {
	synctest.Test(t, func(t *testing.T) {
		p := &port{answer: answer, down: make(chan time.Time, 100)}
		p.Monitor = NewMonitor(Options{
			Dial: func(model.VirtualService, model.RealServer) DialFunc { return p.dial },
			Changed: func(b Batch) {
				for _, c := range b.Changes {
					if c.To == model.RealDown {
						p.down <- c.At
					}
				}
			}})
		v := farmService("web", 1)
		c.Type = model.CheckTCP
		v.Check = c
		if err := p.Set([]model.VirtualService{v}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		test(t, p)
		cancel()
		<-done
	})
}

// mostSilent returns the longest time until a silent server is down: a check has just
// passed, the next one begins as late as its jitter allows and times out, and each
// further check begins s.beside after the one before.
func mostSilent(s settings) time.Duration {
	return s.interval + s.interval*time.Duration(s.jitter)/100 + s.timeout + time.Duration(s.fall-1)*s.beside
}

// TestSilentServer checks that a server that stops answering at any moment is down
// after little more than one timeout.
func TestSilentServer(t *testing.T) {
	for _, c := range []struct {
		check model.Check
		most  time.Duration
	}{
		{model.Check{Interval: time.Second, Fall: 2}, 2350 * time.Millisecond},
		{model.Check{}, 5200 * time.Millisecond},
		{model.Check{Interval: time.Second, Fall: 1}, 2100 * time.Millisecond},
		{model.Check{Interval: time.Second, Fall: 2, Timeout: 300 * time.Millisecond, Fast: 100 * time.Millisecond},
			1500 * time.Millisecond},
		{model.Check{Interval: time.Second, Fall: 2, Fast: time.Second, Jitter: -1}, 3 * time.Second},
	} {
		for began := range 20 {
			atPort(t, c.check, answers, func(t *testing.T, p *port) {
				time.Sleep(10*time.Second + time.Duration(began)*50*time.Millisecond + 1)
				p.become(silent)
				at := time.Now()
				if took := (<-p.down).Sub(at); took > c.most || c.check.Fast == 0 &&
					mostSilent(settle(c.check)) > c.most {
					t.Errorf("fall %d: the server is down after %s, want at most %s", c.check.Fall, took, c.most)
				}
			})
		}
	}
}

// TestLostPacket checks that one lost packet fails no check, even if one failed check
// takes the server down.
func TestLostPacket(t *testing.T) {
	lossy := func(ctx context.Context, n int) error {
		if n%2 == 1 {
			return silent(ctx, n)
		}
		return nil
	}
	for _, fall := range []int{1, 2, 3} {
		atPort(t, model.Check{Interval: time.Second, Fall: fall}, lossy, func(t *testing.T, p *port) {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if c := p.Counters(); c.Failed+c.Void > 0 || c.Checks < 15 || c.InFlight > 1 || len(p.down) > 0 {
				t.Errorf("fall %d: the counters are %+v", fall, c)
			}
		})
	}
}

// TestSlowServer checks that a server that answers just before the timeout is up, and
// that at most two checks of it run in parallel.
func TestSlowServer(t *testing.T) {
	atPort(t, model.Check{Interval: time.Second, Fall: 2}, slowly(990*time.Millisecond), func(t *testing.T, p *port) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := p.Counters(); c.Failed > 0 || c.Checks < 40 || len(p.down) > 0 {
			t.Errorf("counted %+v", c)
		}
		if p.most != 2 {
			t.Errorf("%d parallel connections, want 2", p.most)
		}
	})
}

// TestBeside checks that checks of a silent server begin a quarter of their timeout
// apart, or as configured, and that checks of a server that is down run one after the
// other.
func TestBeside(t *testing.T) {
	for _, c := range []struct {
		check model.Check
		want  []time.Duration
	}{
		{model.Check{Interval: 4 * time.Second, Timeout: 4 * time.Second}, []time.Duration{0, 1, 2, 6, 10, 14}},
		{model.Check{Interval: 4 * time.Second, Timeout: 4 * time.Second, Fast: 3 * time.Second},
			[]time.Duration{0, 3, 7, 11, 15, 19}},
		{model.Check{Interval: 4 * time.Second, Timeout: 4 * time.Second, Fast: 4 * time.Second},
			[]time.Duration{0, 4, 8, 12, 16, 20}},
	} {
		c.check.Initial, c.check.Jitter = model.InitialUp, -1
		atPort(t, c.check, silent, func(t *testing.T, p *port) {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			for i, want := range c.want {
				if got := p.times(); len(got) <= i || got[i] != want*time.Second {
					t.Errorf("fast %s: begun at %v, want %v", c.check.Fast, got, c.want)
					return
				}
			}
		})
	}
}

// TestStarved checks that a check is void if it ended long after its timeout, or if the
// monitor got no CPU time during the check.
func TestStarved(t *testing.T) {
	timedOut := func(ctx context.Context, n int) error {
		defer time.Sleep(300 * time.Millisecond)
		return silent(ctx, n)
	}
	atPort(t, model.Check{Interval: time.Second, Fall: 2}, timedOut, func(t *testing.T, p *port) {
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if c := p.Counters(); c.Void != c.Checks || c.Checks < 10 || len(p.down) > 0 {
			t.Errorf("counted %+v", c)
		}
		if s := p.Status()[0].Servers[0]; s.Detail != "this host was too busy to check: connect: no answer in time" {
			t.Errorf("the status is %+v", s)
		}
		p.become(silent)
		<-p.down
	})
	atPort(t, model.Check{Interval: time.Second, Fall: 2}, answers, func(t *testing.T, p *port) {
		p.become(func(ctx context.Context, n int) error {
			p.overslept(260 * time.Millisecond)
			return silent(ctx, n)
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if c := p.Counters(); c.Failed > 0 || c.Void == 0 || len(p.down) > 0 {
			t.Errorf("counted %+v", c)
		}
		p.become(func(ctx context.Context, n int) error {
			p.overslept(punctual / 2)
			return silent(ctx, n)
		})
		<-p.down
	})
}

// TestReadAfterTime checks that data that has arrived is read even after the timeout.
func TestReadAfterTime(t *testing.T) {
	spoken := make(chan bool)
	at := listen(t, "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.WriteString(c, "220 mail\r\n")
		<-spoken
	})
	for _, dial := range []DialFunc{nil, (&net.Dialer{}).DialContext} {
		conn, err := open(t.Context(), Target{Real: at, Dial: dial}, "tcp")
		if err != nil {
			t.Fatal(err)
		}
		awaitReadable(t, conn)
		if err := conn.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 100)
		if n, err := conn.Read(text); err != nil || string(text[:n]) != "220 mail\r\n" {
			t.Errorf("read %q, %v", text[:n], err)
		}
		if _, err := conn.Read(text); !os.IsTimeout(err) {
			t.Errorf("no data has arrived: got error %v, want a timeout", err)
		}
		spoken <- true
		awaitReadable(t, conn)
		if _, err := conn.Read(text); err != io.EOF {
			t.Errorf("the server has closed the connection: got error %v, want EOF", err)
		}
		conn.Close()
	}
}

func awaitReadable(t *testing.T, b *bounded) {
	t.Helper()
	raw, err := b.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for n := 0; n == 0; {
			n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestConnectedAfterTime checks that an established connection counts even after the
// timeout.
func TestConnectedAfterTime(t *testing.T) {
	past, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	s, err := begin(listen(t, "127.0.0.1:0", func(net.Conn) {}))
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(s.fd), "tcp")
	defer file.Close()
	if err := s.wait(past, file); err != nil {
		t.Errorf("the connection is established, but the error is %v", err)
	}
}
