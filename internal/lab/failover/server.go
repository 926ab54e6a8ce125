package failover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// Server is a running real server.
type Server struct{ worker *child.Worker }

// serverOrder is the first message to a server: its name and its TCP port.
type serverOrder struct {
	Name string
	Port uint16
}

// The messages that follow.
const (
	beSilent = "silent\n"
	resume   = "resume\n"
)

// StartServer starts a server and waits until it listens. When ctx ends, the
// server is killed.
func StartServer(ctx context.Context, name string, port uint16, at child.Place) (*Server, error) {
	w, err := child.Order(ctx, ServerRole, serverOrder{name, port}, at)
	if err != nil {
		return nil, fmt.Errorf("real server %s: %w", name, err)
	}
	return &Server{w}, nil
}

// Kill ends the server; its host keeps running and refuses connections.
func (s *Server) Kill() { s.worker.Close() }

// Silence makes the server's host drop all packets of clients and of checks to its
// port, like a host that is down. Resume ends that.
func (s *Server) Silence() error { return s.notify(beSilent) }

// Resume makes the server answer again.
func (s *Server) Resume() error { return s.notify(resume) }

func (s *Server) notify(line string) error {
	_, err := io.WriteString(s.worker.In, line)
	said := ""
	if err == nil {
		said, err = s.worker.Out.ReadString('\n')
	}
	if said != child.Ready {
		return fmt.Errorf("send %q to a real server: it printed %q: %w", line, said, err)
	}
	return nil
}

// ServerMain runs the role of a real server until its input ends.
func ServerMain() int {
	return child.ExitCode("failover", serve(os.Stdin, os.Stdout))
}

func serve(input io.Reader, out io.Writer) error {
	in := bufio.NewReader(input)
	first, err := in.ReadBytes('\n')
	var do serverOrder
	if err == nil {
		err = json.Unmarshal(first, &do)
	}
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	// The kernel has no socket filters for Multipath TCP, which Go listens for by
	// default.
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", do.Port))
	if err != nil {
		return err
	}
	go answer(l, do.Name)
	for {
		if _, err := io.WriteString(out, child.Ready); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = silence(l.(*net.TCPListener), line == beSilent)
		}
		if err != nil {
			return err
		}
	}
}

// nothing is a classic BPF program that drops every packet.
var nothing = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}

// silence makes the kernel drop all packets to the listener before TCP processes
// them, so that there is no reply. If silent is false, it ends that.
func silence(l *net.TCPListener, silent bool) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if silent {
			failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&unix.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]})
		} else {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		}
	})
	return errors.Join(err, failed)
}

// answer answers every question with the server's name.
func answer(l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "fairlead failover:", err)
			return
		}
		go func() {
			defer conn.Close()
			if conn.SetDeadline(time.Now().Add(AnswerTimeout)) != nil {
				return
			}
			// A health check connects, and sends nothing.
			if n, err := conn.Read(make([]byte, len(question))); n > 0 && err == nil {
				_, _ = io.WriteString(conn, name) // the client reports a missing answer
			}
		}()
	}
}
