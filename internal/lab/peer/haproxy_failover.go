package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
)

// haproxyBalancer is HAProxy on the server host, with its own checks. It is
// controlled over its administration socket, an abstract unix socket that this
// process creates in its own network namespace.
type haproxyBalancer struct {
	server  netip.Addr
	admin   *net.UnixListener
	process *child.Process
	said    rig.Reports
	errs    program.Output
}

// haproxyFailover returns a configuration with HAProxy's best failover: a
// connection that fails is retried on another server, at once if it is refused,
// and before the client's timeout if there is no answer.
func haproxyFailover(at *rig.Addresses, interval time.Duration, names []string) string {
	var b strings.Builder
	b.WriteString("global\n stats socket fd@4 level admin\ndefaults\n mode tcp\n" +
		" timeout connect 300ms\n timeout client 1m\n timeout server 1m\n retries 3\n option redispatch 1\n")
	fmt.Fprintf(&b, "listen %s\n bind %s\n balance roundrobin\n default-server check inter %dms fall %d rise %d\n",
		rig.Service, netip.AddrPortFrom(at.Server, rig.LoadPort), interval.Milliseconds(), rig.Fall, rig.Rise)
	for _, name := range names {
		fmt.Fprintf(&b, " server %s %s\n", name, netip.AddrPortFrom(at.Reals[name], rig.LoadPort))
	}
	return b.String()
}

// Balance implements rig.Balancing.
func (h *haproxy) Balance(ctx context.Context, t *rig.Trial) (rig.Balancer, error) {
	if _, err := h.Engine.Balance(ctx, t); err != nil {
		return nil, err
	}
	b := &haproxyBalancer{said: rig.NewReports(), server: h.Addresses().Server}
	var err error
	// Without a name the kernel finds one (unix(7), autobind).
	if b.admin, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix"}); err != nil {
		return b, err
	}
	theirs, err := b.admin.File()
	if err != nil {
		return b, err
	}
	defer theirs.Close()
	heard, says := io.Pipe()
	go b.listen(heard)
	b.process, err = startHAProxy(ctx, haproxyFailover(h.Addresses(), t.Interval, t.Names), says,
		t.Rig.Place(t.World.Server(), rig.ProxyGroup), theirs)
	if err != nil {
		return b, errors.Join(err, says.Close())
	}
	go func() {
		<-b.process.Done()
		says.Close()
	}()
	if !program.Await(ctx, b.process, func() bool { return program.Listens(b.process.Cmd.Process.Pid, rig.LoadPort) }) {
		return b, errors.Join(fmt.Errorf("start haproxy: it does not listen: %s", b.Log()), ctx.Err())
	}
	return b, nil
}

// listen reads HAProxy's messages about its servers: "Server web/a is DOWN, …".
func (b *haproxyBalancer) listen(said io.Reader) {
	defer close(b.said)
	for lines := bufio.NewScanner(said); lines.Scan(); {
		now := time.Now()
		fmt.Fprintln(&b.errs, lines.Text()) // its Write does not fail
		words := strings.Fields(lines.Text())
		i := slices.Index(words, "Server")
		if i < 0 || len(words) < i+4 {
			continue
		}
		name, ours := strings.CutPrefix(words[i+1], rig.Service+"/")
		if state := strings.Trim(words[i+3], ",."); ours && (state == "UP" || state == "DOWN") {
			b.said.Send(rig.Report{At: now, Server: name, Up: state == "UP"})
		}
	}
}

func (b *haproxyBalancer) Target() netip.AddrPort {
	return netip.AddrPortFrom(b.server, rig.LoadPort)
}

func (b *haproxyBalancer) Reports() <-chan rig.Report { return b.said }

func (b *haproxyBalancer) Log() string { return b.errs.Text() }

// ask makes HAProxy run a command (its management guide, 9.3) and returns the
// answer.
func (b *haproxyBalancer) ask(command string) ([]byte, error) {
	conn, err := net.Dial("unix", b.admin.Addr().String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return nil, err
	}
	return io.ReadAll(conn)
}

func (b *haproxyBalancer) set(server, state string) error {
	said, err := b.ask(fmt.Sprintf("set server %s/%s state %s", rig.Service, server, state))
	if err == nil && len(bytes.TrimSpace(said)) > 0 {
		err = errors.New(string(said))
	}
	if err != nil {
		return fmt.Errorf("send a command to haproxy: %w", err)
	}
	return nil
}

func (b *haproxyBalancer) Drain(ctx context.Context, server string) error {
	if err := b.set(server, "drain"); err != nil {
		return err
	}
	var failed error
	drained := func() bool {
		n, err := b.sessions(server)
		failed = err
		return err != nil || n == "0"
	}
	if !program.Await(ctx, b.process, drained) {
		return errors.Join(fmt.Errorf("drain %s: haproxy ended: %s", server, b.Log()), ctx.Err())
	}
	return failed
}

// sessions returns a server's number of sessions, as HAProxy prints it.
func (b *haproxyBalancer) sessions(server string) (string, error) {
	said, err := b.ask("show stat")
	if err != nil {
		return "", fmt.Errorf("ask haproxy: %w", err)
	}
	rows, err := csv.NewReader(bytes.NewReader(bytes.TrimSpace(said))).ReadAll()
	if err != nil || len(rows) == 0 {
		return "", fmt.Errorf("ask haproxy: it printed %q: %w", said, err)
	}
	current := slices.Index(rows[0], "scur")
	for _, row := range rows[1:] {
		if current >= 0 && row[0] == rig.Service && row[1] == server {
			return row[current], nil
		}
	}
	return "", fmt.Errorf("ask haproxy: unknown server %s: %q", server, said)
}

func (b *haproxyBalancer) Enable(_ context.Context, server string) error {
	return b.set(server, "ready")
}

func (b *haproxyBalancer) Close() error {
	if b.process != nil {
		_ = b.process.Kill() // its exit status says only that it was killed
	}
	if b.admin == nil {
		return nil
	}
	return b.admin.Close()
}
