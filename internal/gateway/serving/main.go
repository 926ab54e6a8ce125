package serving

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/entries"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

// Role is the name under which Main must be given to child.Dispatch.
const Role = "gateway"

// controlDescriptor is where the process finds its end of the control socket.
const controlDescriptor = 3

// Main is the main function of a serving process without a dashboard.
func Main() int { return serve(confine(), nil) }

// MainWith returns the main function of a serving process whose dashboard dashboard makes, if the settings enable one.
func MainWith(dashboard func(gateway.Shown) gateway.Dashboard) func() int {
	return func() int { return serve(confine(), dashboard) }
}

// serve is Main in a process that is confined, unless that failed with an error: it answers that error to the
// controlling process, and ends.
func serve(unconfined error, dashboard func(gateway.Shown) gateway.Dashboard) int {
	collectRarely()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ends := make(chan os.Signal, 2)
	signal.Notify(ends, unix.SIGTERM)
	// Signals of a terminal and the signal to reopen logs are for the controlling process.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	s := &server{unconfined: unconfined, dashboard: dashboard, ctx: ctx, cancel: cancel, began: time.Now()}
	if err := s.run(ends); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead: serve:", err)
		return 1
	}
	return 0
}

// server is the state of the serving process.
type server struct {
	unconfined error
	// dashboard makes the pages of the dashboard; nil if there are none.
	dashboard func(gateway.Shown) gateway.Dashboard
	gateway   *gateway.Gateway
	// made is gateway for the goroutine that reports progress.
	made    atomic.Pointer[gateway.Gateway]
	sockets entries.Sockets
	// static is the JSON form of the static settings.
	static string
	began  time.Time
	// owner is the user of the controlling processes.
	owner   uint32
	control *net.UnixListener
	// cancel ends the process within the grace time, which ctx shows.
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	config *model.Config
	// newest is the number of the controlling process that has changed the configuration last.
	newest int
	// keeps: the process continues without a controlling process.
	keeps, left bool
}

// run serves until the controlling process or a signal ends it.
func (s *server) run(ends <-chan os.Signal) error {
	first, err := s.accept()
	if err != nil {
		return err
	}
	goroutine.Go("answer the controlling process", func() { s.attend(first, 0) })
	goroutine.Go("follow signals", func() {
		for range ends {
			s.end()
		}
	})
	if s.control != nil {
		goroutine.Go("admit controlling processes", s.admit)
	}
	return s.gateway.Serve(s.ctx, s.sockets)
}

// end makes the process accept requests for the time that its settings have for that, and end
// within the grace time. The second call ends the first time.
func (s *server) end() {
	if s.ctx.Err() != nil {
		s.gateway.Hurry()
	}
	s.cancel()
}

// accept takes the first request, and answers it when the gateway has its configuration and
// its sockets.
func (s *server) accept() (*link, error) {
	file := os.NewFile(controlDescriptor, "control")
	conn, err := net.FileConn(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	l := &link{conn: conn.(*net.UnixConn)}
	var r request
	fds, err := l.receive(&r)
	if err != nil {
		return nil, err
	}
	if r.Start == nil {
		return nil, errors.New("the first request is not to start")
	}
	answer := response{ID: r.ID}
	stop := s.beats(l, r)
	if answer.Statuses, err = s.start(r.Start, fds); err != nil {
		answer.Fault = err.Error()
	}
	stop()
	return l, errors.Join(err, l.send(answer, nil))
}

// start makes the gateway with its first configuration.
func (s *server) start(order *start, fds []int) ([]status.Status, error) {
	if s.unconfined != nil {
		return nil, fmt.Errorf("give up privileges: %w", s.unconfined)
	}
	static, err := json.Marshal(order.Static)
	if err != nil {
		return nil, err
	}
	s.static, s.owner = string(static), order.Owner
	rest := fds[min(len(order.Sockets), len(fds)):]
	sockets, err := received(order.Sockets, fds[:len(fds)-len(rest)])
	if err != nil {
		return nil, err
	}
	if s.sockets, err = sockets.sockets(); err != nil {
		return nil, err
	}
	log := logger(order.Static)
	slog.SetDefault(log) // for the stacks of goroutines and objects that panic
	if s.gateway, err = gateway.New(order.Static, log); err != nil {
		return nil, err
	}
	s.gateway.AddDashboard(s.dashboard)
	s.made.Store(s.gateway)
	if order.Log && len(rest) > 0 {
		s.gateway.LogTo(os.NewFile(uintptr(rest[0]), "access log"))
		rest = rest[1:]
	}
	if order.Control && len(rest) > 0 {
		file := os.NewFile(uintptr(rest[0]), "control")
		l, err := net.FileListener(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("listen for the next controlling process: %w", err)
		}
		s.control = l.(*net.UnixListener)
	}
	s.gateway.Inherit(order.Handover)
	return s.apply(order.Config), nil
}

// logger writes to the standard error with the level and the format of the static settings.
func logger(static model.Static) *slog.Logger {
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(static.LogLevel)) // the front end has checked it
	options := &slog.HandlerOptions{Level: level}
	if static.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// apply changes the configuration, and returns the objects that have a problem.
func (s *server) apply(c change) []status.Status {
	from := s.config
	if from == nil || c.Whole {
		from = new(model.Config)
	}
	s.config = c.apply(from)
	return slices.DeleteFunc(slices.Clone(s.gateway.Apply(s.config, c.Known)), func(at status.Status) bool {
		return len(at.Reasons) == 0
	})
}

// admit serves the next controlling processes.
func (s *server) admit() {
	for number := 1; ; number++ {
		conn, err := s.control.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // clients have all descriptors
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if who, err := unixsock.PeerOf(conn); err != nil || who.Uid != 0 && who.Uid != s.owner {
			conn.Close()
			continue
		}
		goroutine.Go("answer a controlling process", func() { s.attend(&link{conn: conn}, number) })
	}
}

// attend answers the requests of a controlling process until it closes the socket. Later ones have higher numbers.
func (s *server) attend(l *link, number int) {
	defer l.conn.Close()
	for {
		var r request
		fds, err := l.receive(&r)
		if err != nil {
			s.mu.Lock()
			if !s.keeps {
				if !errors.Is(err, io.EOF) {
					fmt.Fprintln(os.Stderr, "fairlead: serve:", err)
				}
				os.Exit(1) // without a controlling process, it would serve an old configuration for ever
			}
			s.mu.Unlock()
			return
		}
		stop := s.beats(l, r)
		answer, give := s.answer(r, fds, number)
		stop()
		err = l.send(answer, give)
		unixsock.CloseAll(give)
		if err != nil {
			return
		}
	}
}

// answer carries out a request of a controlling process. It owns the descriptors.
func (s *server) answer(r request, fds []int, from int) (answer response, give []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer.ID = r.ID
	defer goroutine.Recover("answer the controlling process", func() {
		answer.Fault = "a mistake in the gateway: the log of the serving process has it"
	})
	if r.Ask == askLog && len(fds) == 1 {
		s.gateway.LogTo(os.NewFile(uintptr(fds[0]), "access log"))
		return answer, nil
	}
	unixsock.CloseAll(fds)
	switch {
	case r.Apply != nil && from < s.newest: // it had not been read yet when the process ended
		answer.Fault = "a later controlling process has changed the configuration"
	case r.Apply != nil:
		s.newest = from
		answer.Statuses = s.apply(*r.Apply)
	case r.Explain != nil:
		var found shown.Answer
		var err error
		// An explanation only reads the snapshot, whose values do not change.
		failed := recovery.Object("explanation of "+r.Explain.URL, func() {
			found, err = s.gateway.Explain(r.Explain.Entry, r.Explain.Method, r.Explain.URL)
		})
		if answer.Answer = &found; failed != nil || err != nil {
			answer.Fault = cmp.Or(failed, err).Error()
		}
	default:
		give, answer.Fault = s.asked(r.Ask, &answer)
		if r.Wrong && answer.Raw != nil {
			wrong := answer.Raw.Wrong()
			answer.Raw = &wrong
		}
	}
	return answer, give
}

// asked answers a request without parameters. It returns descriptors to send and what is
// wrong.
func (s *server) asked(what ask, answer *response) (give []int, fault string) {
	switch what {
	case askSelf:
		answer.Self = &self{Static: s.static, Began: s.began.UnixNano(), Left: s.left}
	case askKeep:
		s.keeps = true
	case askHandover:
		h := s.gateway.Handover()
		answer.Handover = &h
		copied, err := copies(s.sockets)
		if err != nil {
			return nil, err.Error()
		}
		answer.Sockets, give = copied.list()
	case askLeave:
		s.left = true
		s.gateway.Leave()
	case askStop:
		s.left = true // the next controlling process must not adopt it
		s.end()
	case askRaw:
		raw := s.gateway.Objects()
		answer.Raw = &raw
	case askTotals:
		totals := s.gateway.Totals()
		answer.Totals = &totals
	default:
		return nil, fmt.Sprintf("this serving process does not know the request %q", what)
	}
	return give, ""
}

// beats sends responses with Busy while a request is carried out, until the returned function is called. A request
// that makes no progress has none, so that a controlling process does not wait for it for ever.
func (s *server) beats(l *link, r request) (stop func()) {
	if !r.Beats {
		return func() {}
	}
	ticker := time.NewTicker(beatEvery)
	ended, done := make(chan struct{}), make(chan struct{})
	goroutine.Go("report progress", func() {
		defer close(done)
		beat(ticker.C, ended, s.progress, func() error { return l.send(response{ID: r.ID, Busy: true}, nil) })
	})
	return func() {
		ticker.Stop()
		close(ended)
		<-done
	}
}

// progress returns that of the gateway, 0 if it is not made yet.
func (s *server) progress() uint64 {
	if g := s.made.Load(); g != nil {
		return g.Progress()
	}
	return 0
}
