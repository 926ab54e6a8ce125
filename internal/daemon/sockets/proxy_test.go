package sockets_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/engine"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
)

// fake is a proxy that answers when the test does.
type fake struct {
	engine.Proxy
	got     chan proxy.Config
	answers chan error
	done    chan struct{}
}

func newFake() *fake {
	return &fake{got: make(chan proxy.Config), answers: make(chan error), done: make(chan struct{})}
}

func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Close() error          { return nil }

func (f *fake) Set(ctx context.Context, c proxy.Config) error {
	select {
	case f.got <- c:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-f.answers:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer takes the next configuration, answers it, and returns how many listeners it has.
func (f *fake) answer(err error) int {
	c := <-f.got
	f.answers <- err
	return len(c.Listeners)
}

// listening returns a configuration with listeners at these ports.
func listening(ports ...uint16) (c proxy.Config) {
	for _, port := range ports {
		c.Listeners = append(c.Listeners, plan.Listener{Proto: model.TCP, Host: netip.IPv4Unspecified(),
			Ports: model.Port(port), Target: netip.MustParseAddr("172.30.0.2"), TargetPorts: model.Port(80)})
	}
	return c
}

// begin returns a Proxy in front of a fake.
func begin(t *testing.T) (*sockets.Proxy, *fake) {
	return beginReported(t, func(error) {})
}

// beginReported is begin with a receiver of reports.
func beginReported(t *testing.T, report func(error)) (*sockets.Proxy, *fake) {
	f := newFake()
	p := sockets.New(sockets.Config{Start: func(context.Context) (engine.Proxy, error) { return f, nil },
		Report: report})
	t.Cleanup(func() { _ = p.Close() })
	return p, f
}

// unopened returns what a step that needs new ports waits for.
func unopened(t *testing.T, p *sockets.Proxy, c proxy.Config) *engine.UnopenedError {
	t.Helper()
	var u *engine.UnopenedError
	if err := p.Set(t.Context(), c); !errors.As(err, &u) {
		t.Fatalf("set new ports: %v, want an UnopenedError", err)
	}
	return u
}

// TestNewPortsAreOpenFirst: a step that needs new ports is repeated after the proxy has opened them. Closing ports, and
// giving open ones another target, needs no answer.
func TestNewPortsAreOpenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := begin(t)
		u := unopened(t, p, listening(80, 81))
		unopened(t, p, listening(80, 81)) // the proxy says nothing
		if n := f.answer(nil); n != 2 {
			t.Errorf("the proxy got %d listeners, want 2", n)
		}
		if err := u.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := listening(80, 81)
		other.Listeners[0].Target = netip.MustParseAddr("172.30.0.3")
		for _, c := range []proxy.Config{listening(80, 81), other, listening(81)} {
			if err := p.Set(t.Context(), c); err != nil {
				t.Fatalf("set %v: %v", c, err)
			}
		}
		for n := 0; n != 1; n = f.answer(nil) { // the newest one is sent; earlier ones may be
		}
		if err := p.Await(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestTakenPort: the repeated step gets the reason why a port cannot be opened, and so does a later one.
func TestTakenPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := begin(t)
		for range 2 {
			u := unopened(t, p, listening(80))
			taken := &proxy.BindError{Proto: model.TCP, Err: errors.New("in use")}
			f.answer(taken)
			if err := u.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			var bind *proxy.BindError
			if err := p.Set(t.Context(), listening(80)); !errors.As(err, &bind) {
				t.Errorf("%v, want %v", err, taken)
			}
		}
	})
}

// TestSilentProxy: a step that needs a proxy that says nothing fails after a while. Others do not notice.
func TestSilentProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := begin(t)
		u := unopened(t, p, listening(80))
		f.answer(nil)
		if err := u.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Set(t.Context(), listening(80)); err != nil {
			t.Fatal(err)
		}
		f.answer(nil)
		u = unopened(t, p, listening(80, 81))
		<-f.got // it says nothing from now on
		if err := p.Set(t.Context(), listening(80)); err != nil {
			t.Errorf("a step without new ports: %v", err)
		}
		if err := u.Wait(t.Context()); !errors.Is(err, engine.ErrSilentProxy) {
			t.Errorf("a step with new ports: %v, want %v", err, engine.ErrSilentProxy)
		}
		if err := p.Await(t.Context()); !errors.Is(err, engine.ErrSilentProxy) {
			t.Errorf("wait for a proxy that says nothing: %v, want %v", err, engine.ErrSilentProxy)
		}
	})
}

// TestUnusedPortsAreClosed: ports that were opened for a step that is not repeated are closed after a while.
func TestUnusedPortsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := begin(t)
		unopened(t, p, listening(80))
		f.answer(nil)
		began := time.Now()
		if n := f.answer(nil); n != 0 || time.Since(began) < time.Second {
			t.Errorf("after %v the proxy gets %d listeners, want none after a while", time.Since(began), n)
		}
	})
}

// TestPortsOfAnEndedStepAreClosed: a step that ends without the ports that it has waited for leaves none open, and the
// next step need not wait until they are closed.
func TestPortsOfAnEndedStepAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		proxies := sockets.NewProxies(sockets.Config{
			Start: func(context.Context) (engine.Proxy, error) { return f, nil }})
		started, err := proxies.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := started.(*sockets.Proxy)
		t.Cleanup(func() { _ = p.Close() })
		gone := errors.New("the sandbox has ended")
		began, calls, closed := time.Now(), 0, make(chan int, 1)
		go func() { f.answer(nil); closed <- f.answer(nil) }()
		err = proxies.Do(t.Context(), func() error {
			if calls++; calls == 1 {
				return p.Set(t.Context(), listening(80))
			}
			return gone
		})
		synctest.Wait()
		if err != gone || calls != 2 || len(closed) != 1 || <-closed != 0 || time.Since(began) > 0 {
			t.Errorf("the step returned %v after %v and %d calls, and its port is not closed", err, time.Since(began), calls)
		}
		go func() { f.answer(nil); f.answer(nil) }()
		if err := proxies.Do(t.Context(), func() error { return p.Set(t.Context(), listening(81)) }); err != nil {
			t.Errorf("the next step: %v", err)
		}
		if wait := time.Since(began); wait > 0 {
			t.Errorf("the next step waited %v", wait)
		}
	})
}

// TestStepsBegunFromAnotherState: new ports of a step are not opened if the ports have changed since it began: it
// begins anew.
func TestStepsBegunFromAnotherState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := begin(t)
		u := unopened(t, p, listening(80))
		f.answer(nil)
		if err := u.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Set(t.Context(), listening(80)); err != nil {
			t.Fatal(err)
		}
		<-f.got // the proxy is busy with it
		u = unopened(t, p, listening(80, 81))
		if err := p.Set(t.Context(), proxy.Config{}); err != nil { // another step closes all
			t.Fatal(err)
		}
		f.answers <- nil
		for answered := false; !answered; {
			select {
			case c := <-f.got:
				if len(c.Listeners) != 0 {
					t.Errorf("%d ports are open again, which another step has closed", len(c.Listeners))
				}
				f.answers <- nil
			case <-u.Done:
				answered = true
			}
		}
	})
}

// TestPortsThatAnotherStepCloses: a step whose new ports another step has closed before it used them opens them again.
func TestPortsThatAnotherStepCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := begin(t)
		first := unopened(t, p, listening(80))
		<-f.got // the proxy is busy with it
		if err := p.Set(t.Context(), proxy.Config{}); err != nil {
			t.Fatal(err)
		}
		f.answers <- nil
		if err := first.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.answer(nil) // it closes the port
		synctest.Wait()
		u := unopened(t, p, listening(80, 81))
		if n := f.answer(nil); n != 2 {
			t.Errorf("the proxy got %d listeners, want 2", n)
		}
		if err := u.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Set(t.Context(), listening(80, 81)); err != nil {
			t.Errorf("the step, repeated: %v", err)
		}
	})
}

// TestRefusedConfigurationIsSentAgain: a configuration that is in use and that the proxy refuses is sent again after
// waits that grow, until the proxy takes it. The first failure and the end are reported. A proxy that has ended gets
// nothing more.
func TestRefusedConfigurationIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan error, 9)
		p, f := beginReported(t, func(err error) { reports <- err })
		u := unopened(t, p, listening(80, 81))
		f.answer(nil)
		if err := u.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Set(t.Context(), listening(81)); err != nil { // it needs no new port
			t.Fatal(err)
		}
		refused := errors.New("too many open files")
		var waited []time.Duration
		for range 4 {
			began := time.Now()
			if n := f.answer(refused); n != 1 {
				t.Errorf("the proxy got %d listeners, want 1", n)
			}
			waited = append(waited, time.Since(began))
			if err := p.Await(t.Context()); !errors.Is(err, refused) {
				t.Errorf("a request that needs the answer: %v, want %v", err, refused)
			}
		}
		if waited[1] == 0 || waited[2] <= waited[1] || waited[3] <= waited[2] {
			t.Errorf("it is sent again after %v, want waits that grow", waited)
		}
		f.answer(nil)
		if err := p.Await(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if first, end := <-reports, <-reports; !errors.Is(first, refused) || end != nil || len(reports) > 0 {
			t.Errorf("reported: %v, %v and %d more, want the error and the end", first, end, len(reports))
		}
		if err := p.Set(t.Context(), proxy.Config{}); err != nil {
			t.Fatal(err)
		}
		close(f.done)
		f.answer(refused)
		select {
		case <-f.got:
			t.Error("a proxy that has ended gets the configuration again")
		case <-time.After(time.Hour):
		}
	})
}
