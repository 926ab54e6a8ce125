package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/accesslog"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
	model "fairlead/internal/model/gateway"
	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

// Controller controls the serving process. Its methods may be called concurrently.
type Controller struct {
	opt Options

	mu      sync.Mutex
	static  model.Static
	sockets descriptors
	// config is the wanted configuration, and sent the one that current has.
	config, sent *model.Config
	known        []status.Status
	current      *process
	// leaving are processes that complete their last connections.
	leaving map[*process]bool
	// ending: Stop or Part was called; released: Part was.
	ending, released bool
	// ended is closed when Stop or Part was called.
	ended chan struct{}
}

// Start returns the controller of a serving process that has the configuration: the one
// that an earlier controlling process has left in Options.Directory, or a new one. It
// returns the statuses of the objects that have a problem. The caller must not change
// the configuration or a part of it afterwards.
func Start(ctx context.Context, opt Options, static model.Static, config *model.Config, known []status.Status) (
	*Controller, []status.Status, error) {
	static, err := Seclude(static)
	if err != nil {
		return nil, nil, err
	}
	if opt.Life == nil {
		opt.Life = context.Background()
	}
	c := &Controller{opt: opt, static: static, sockets: descriptors{}, leaving: map[*process]bool{},
		ended: make(chan struct{})}
	c.config, c.known = Resolve(config, known)
	found, leaving, err := find(ctx, opt)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range leaving {
		c.leaving[p] = true
		go c.forget(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	statuses, err := c.begin(ctx, found)
	if err != nil {
		c.sockets.close()
		return nil, nil, err
	}
	return c, statuses, nil
}

// begin adopts the first of the processes that were found, or replaces it, or starts one.
func (c *Controller) begin(ctx context.Context, found []*process) (statuses []status.Status, err error) {
	if len(found) == 0 {
		return c.replace(ctx, nil, c.static)
	}
	old := found[0]
	for _, other := range found[1:] {
		c.dismiss(ctx, other)
	}
	handover, err := c.takeOver(ctx, old)
	if err != nil {
		c.opt.Log.Warn("the running serving process cannot be adopted: it is ended", "pid", old.pid, "error", err)
		if err := old.end(); err != nil {
			return nil, err
		}
		return c.replace(ctx, nil, c.static)
	}
	c.current = old
	answer, err := old.ask(ctx, askSelf)
	if err != nil {
		return nil, err
	}
	wanted, err := json.Marshal(c.static)
	if err != nil {
		return nil, err
	}
	if !old.runsOurProgram() || answer.Self == nil || answer.Self.Static != string(wanted) {
		return c.replace(ctx, handover, c.static)
	}
	c.opt.Log.Info("adopted the serving process", "pid", old.pid)
	go c.watch(old)
	return c.send()
}

// takeOver gets copies of the sockets of a process that another controlling process started.
func (c *Controller) takeOver(ctx context.Context, old *process) (*gateway.Handover, error) {
	answer, fds, err := old.call(ctx, request{Ask: askHandover}, nil)
	if err != nil {
		return nil, err
	}
	if c.sockets, err = received(answer.Sockets, fds); err != nil {
		return nil, err
	}
	return answer.Handover, nil
}

// replace starts a process with the static settings, and lets the current one leave.
func (c *Controller) replace(ctx context.Context, handover *gateway.Handover, static model.Static) ([]status.Status,
	error) {
	sockets, err := c.sockets.open(static.EntryPoints)
	if err != nil {
		return nil, err
	}
	next, statuses, err := c.start(ctx, handover, static, sockets)
	if err != nil {
		sockets.closeExcept(c.sockets)
		return nil, err
	}
	c.sockets.closeExcept(sockets)
	old := c.current
	c.current, c.static, c.sockets, c.sent = next, static, sockets, c.config
	if old != nil {
		c.dismiss(ctx, old)
	}
	go c.watch(next)
	return statuses, nil
}

// start starts a process, which accepts connections when start returns.
func (c *Controller) start(ctx context.Context, handover *gateway.Handover, static model.Static, sockets descriptors) (
	p *process, statuses []status.Status, err error) {
	order := &start{Static: static, Config: changeOf(new(model.Config), c.config), Owner: uint32(os.Geteuid())}
	order.Config.Known = c.known
	if handover != nil {
		order.Handover = *handover
	}
	var fds, own []int
	defer func() { unixsock.CloseAll(own) }()
	order.Sockets, fds = sockets.list()
	if l := static.AccessLog; l != nil && l.FilePath != "" {
		fd, err := openLog(l.FilePath)
		if err != nil {
			return nil, nil, err
		}
		order.Log, fds, own = true, append(fds, fd), append(own, fd)
	}
	path := ""
	if c.opt.Directory != "" {
		var fd int
		if fd, path, err = listen(c.opt.Directory); err != nil {
			return nil, nil, fmt.Errorf("listen for the next controlling process: %w", err)
		}
		order.Control, fds, own = true, append(fds, fd), append(own, fd)
	}
	if p, err = launch(c.opt); err != nil {
		return nil, nil, err
	}
	p.path = path
	answer, _, err := p.call(ctx, request{Start: order}, fds)
	if err == nil && path != "" {
		_, err = p.ask(ctx, askKeep)
	}
	if err != nil {
		err = errors.Join(err, p.kill())
		p.forget()
		return nil, nil, err
	}
	return p, answer.Statuses, nil
}

// end kills the process and waits for its end.
func (p *process) end() error {
	if err := p.kill(); err != nil {
		return err
	}
	return child.AwaitKilled(p.pid, p.done)
}

// openLog opens a file for the access log.
func openLog(path string) (int, error) {
	file, err := accesslog.Open(path)
	if err != nil {
		return -1, err
	}
	defer file.Close()
	return duplicate(file)
}

// forget removes the socket of a process that has ended.
func (p *process) forget() {
	_ = p.link.conn.Close()
	if p.path != "" {
		_ = os.Remove(p.path)
	}
}

// dismiss lets a process complete its connections.
func (c *Controller) dismiss(ctx context.Context, old *process) {
	if _, err := old.ask(ctx, askLeave); err != nil {
		c.opt.Log.Warn("the earlier serving process does not answer: it is ended", "pid", old.pid,
			"error", errors.Join(err, old.kill()))
	}
	c.leaving[old] = true
	go c.forget(old)
}

// forget removes what an earlier process has left when it has ended.
func (c *Controller) forget(old *process) {
	<-old.done
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leaving, old)
	old.forget()
}

// restartWait is the time before a process is started again that has lived for less than this
// time, or that could not be started.
const restartWait = time.Second

// watch replaces the process when it has ended.
func (c *Controller) watch(p *process) {
	began := time.Now()
	select {
	case <-c.ended:
		return
	case <-p.done:
	}
	p.forget()
	for again := time.Since(began) < restartWait; ; again = true {
		if again {
			select {
			case <-c.ended:
				return
			case <-time.After(restartWait):
			}
		}
		if c.restart(p) {
			return
		}
	}
}

// restart starts a process in place of one that has ended. It returns false if that failed.
func (c *Controller) restart(p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending || c.current != p {
		return true
	}
	c.opt.Log.Error("the serving process has ended: it is started again", "pid", p.pid)
	c.current = nil // there is none to leave
	if _, err := c.replace(c.opt.Life, nil, c.static); err != nil {
		c.current = p
		c.opt.Log.Error("the serving process cannot be started", "error", err)
		return false
	}
	return true
}

// Apply changes the configuration. It returns the statuses of the objects that have a
// problem. If it fails, the next serving process gets the configuration. While Stop waits for
// requests, Apply works still: their servers may change.
func (c *Controller) Apply(config *model.Config, known []status.Status) ([]status.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return nil, errEnding
	}
	c.config, c.known = Resolve(config, known)
	return c.send()
}

var errEnding = errors.New("the gateway ends")

// send sends the wanted configuration to the current process. One that neither answers nor reports progress is
// killed, so that watch replaces it. Only the end of Options.Life interrupts it: the state of the process would be
// unknown.
func (c *Controller) send() ([]status.Status, error) {
	from := c.sent
	whole := from == nil
	if whole {
		from = new(model.Config)
	}
	next := changeOf(from, c.config)
	next.Known, next.Whole = c.known, whole
	answer, _, err := c.current.call(c.opt.Life, request{Apply: &next}, nil)
	if err != nil && c.opt.Life.Err() == nil {
		err = errors.Join(err, c.current.kill())
	}
	if err != nil {
		return nil, err
	}
	c.sent = c.config
	return answer.Statuses, nil
}

// Replace starts another serving process with the static settings, also if they are the
// same. The current one completes its connections. If Replace fails, nothing changes.
func (c *Controller) Replace(ctx context.Context, static model.Static) ([]status.Status, error) {
	static, err := Seclude(static)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return nil, errEnding
	}
	answer, fds, err := c.current.call(ctx, request{Ask: askHandover}, nil)
	unixsock.CloseAll(fds) // this process has them
	if err != nil {
		return nil, err
	}
	return c.replace(ctx, answer.Handover, static)
}

// Explain returns which router a request takes, and why not another.
func (c *Controller) Explain(ctx context.Context, entry, method, url string) (shown.Answer, error) {
	answer, err := c.query(ctx, request{Explain: &question{entry, method, url}})
	if err != nil || answer.Answer == nil {
		return shown.Answer{}, err
	}
	return *answer.Answer, nil
}

// Objects returns all objects with their states.
func (c *Controller) Objects(ctx context.Context) (view.RawData, error) {
	return c.objects(ctx, request{Ask: askRaw})
}

// Wrong returns the objects that need attention. Those of an earlier version of the serving process are all.
func (c *Controller) Wrong(ctx context.Context) (view.RawData, error) {
	raw, err := c.objects(ctx, request{Ask: askRaw, Wrong: true})
	return raw.Wrong(), err
}

func (c *Controller) objects(ctx context.Context, r request) (view.RawData, error) {
	answer, err := c.query(ctx, r)
	if err != nil || answer.Raw == nil {
		return view.RawData{}, err
	}
	return *answer.Raw, nil
}

// Totals returns the counters of all requests of the serving process, which begin with it.
func (c *Controller) Totals(ctx context.Context) (metric.Totals, error) {
	answer, err := c.query(ctx, request{Ask: askTotals})
	if err != nil || answer.Totals == nil {
		return metric.Totals{}, err
	}
	return *answer.Totals, nil
}

func (c *Controller) query(ctx context.Context, r request) (response, error) {
	c.mu.Lock()
	p := c.current
	c.mu.Unlock()
	answer, fds, err := p.call(ctx, r, nil)
	unixsock.CloseAll(fds)
	return answer, err
}

// Reopen opens the file of the access log anew, after another program has renamed it.
func (c *Controller) Reopen(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.static.AccessLog
	if c.ending || l == nil || l.FilePath == "" {
		return nil
	}
	fd, err := openLog(l.FilePath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	all := []*process{c.current}
	for p := range c.leaving {
		all = append(all, p)
	}
	for _, p := range all {
		_, fds, failed := p.call(ctx, request{Ask: askLog}, []int{fd})
		unixsock.CloseAll(fds)
		if p == c.current {
			err = failed // one that leaves may have ended
		}
	}
	return err
}

// Part leaves the serving process to the next controlling process.
func (c *Controller) Part() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish()
	c.released = true
}

func (c *Controller) finish() (all []*process) {
	if c.ending {
		return nil
	}
	c.ending = true
	close(c.ended)
	c.sockets.close()
	all = append(all, c.current)
	for p := range c.leaving {
		all = append(all, p)
	}
	return all
}

// Stop ends all serving processes: requests in progress may end within the grace time of
// the entry points. If ctx ends first, it kills them.
func (c *Controller) Stop(ctx context.Context) {
	c.mu.Lock()
	all := c.finish()
	c.mu.Unlock()
	if err := stop(ctx, all); err != nil {
		c.opt.Log.Error("end the gateway", "error", err)
	}
}

// stop ends the processes.
func stop(ctx context.Context, all []*process) error {
	var errs []error
	for _, p := range all {
		if _, err := p.ask(ctx, askStop); err != nil {
			errs = append(errs, p.kill()) // it may have ended
		}
	}
	for _, p := range all {
		select {
		case <-p.done:
		case <-ctx.Done():
			errs = append(errs, p.end())
		}
		p.forget()
	}
	return errors.Join(errs...)
}

// End ends the serving processes that earlier controlling processes have left.
func End(ctx context.Context, opt Options) error {
	found, leaving, err := find(ctx, opt)
	return errors.Join(err, stop(ctx, append(found, leaving...)))
}

// Address returns the address of an entry point's socket, for example "127.0.0.1:8080".
func (c *Controller) Address(entry string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, udp := range []bool{false, true} {
		if fd, ok := c.sockets[socketName{entry, udp}]; ok {
			at, _ := addressOf(fd)
			return at.String()
		}
	}
	return ""
}
