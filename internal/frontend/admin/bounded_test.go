package admin_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
)

// begin connects and writes a request, or a part of one.
func begin(t *testing.T, socket, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = io.WriteString(conn, text) // the server may have closed it
	return conn
}

// status returns the first line of the response.
func status(t *testing.T, conn net.Conn) string {
	t.Helper()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return line
}

// otherProcessIsAnswered makes a request as another process of root.
func otherProcessIsAnswered(t *testing.T, socket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_ASK="+socket)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "200 OK") {
		t.Errorf("another process got %q, %v", out, err)
	}
}

// TestFollowersDoNotTakeAllConnections checks that another process gets a response
// while one process follows events as often as it can.
func TestFollowersDoNotTakeAllConnections(t *testing.T) {
	events := make(chan api.Event)
	socket := admintest.Serve(t, withEvents(&fakeEvents{events}))
	defer close(events)
	following, refused := 0, 0
	for range admin.MaxConns {
		switch line := status(t, begin(t, socket,
			"GET /v1/events?follow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); {
		case strings.Contains(line, "200 OK"):
			following++
		case strings.Contains(line, "409 Conflict"), strings.Contains(line, "503 Service Unavailable"):
			refused++
		default:
			t.Errorf("got %q", line)
		}
	}
	if following == 0 || refused == 0 {
		t.Errorf("%d follow, %d are refused", following, refused)
	}
	otherProcessIsAnswered(t, socket)
}

// TestUnfinishedRequestsAreLimited checks that a process's connections above its
// limit are refused at once, and that another process gets a response.
func TestUnfinishedRequestsAreLimited(t *testing.T) {
	socket := admintest.Serve(t, new(fake).daemon())
	var last net.Conn
	for range admin.ConnsPerPeer + 1 {
		last = begin(t, socket, "POST /v1/attach HTTP/1.1\r\nHost: x\r\n")
	}
	if line := status(t, last); !strings.Contains(line, "503 Service Unavailable") {
		t.Errorf("one over the limit got %q", line)
	}
	otherProcessIsAnswered(t, socket)
}
