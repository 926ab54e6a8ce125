// Package etcd runs real etcd servers for tests: one member or three, each in a place of the test,
// with data in memory and short elections. It makes the faults that etcd has in practice. All
// members end with the test.
//
// The program is Debian's, or the one in the directory that FAIRLEAD_TEST_ETCD names.
package etcd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
	"fairlead/test/process"
)

// Ports of each member.
const (
	ClientPort = 2379
	peerPort   = 2380
)

// Cluster is an etcd with all its members.
type Cluster struct {
	Members []*Member

	t testing.TB
}

// Member is one server of a cluster.
type Member struct {
	// Host is the address at which the member serves clients and the other members.
	Host string
	// In is the member's place.
	In place.Place

	t     testing.TB
	args  []string
	data  string
	log   bytes.Buffer
	cmd   *exec.Cmd
	ended chan struct{}
}

// Spot is where a member runs: an address in a place.
type Spot struct {
	Host string
	In   place.Place
}

// Start starts a cluster with one member per spot, and waits until it has a leader. The members
// must reach each other. Flags are further arguments of each member.
func Start(t testing.TB, spots []Spot, flags ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var initial []string
	for n, s := range spots {
		initial = append(initial, fmt.Sprintf("m%d=http://%s:%d", n, s.Host, peerPort))
	}
	for n, s := range spots {
		c.Members = append(c.Members, newMember(t, n, s, strings.Join(initial, ","), flags))
	}
	for _, m := range c.Members {
		m.Start()
	}
	c.Leader()
	return c
}

// Alone starts a cluster of n members in one namespace, at 127.0.0.1, 127.0.0.2 and so on. It
// returns the namespace, in which the clients must run.
func Alone(t testing.TB, n int, flags ...string) (*Cluster, *netns.Namespace) {
	t.Helper()
	ns := kerneltest.Netns(t)
	var spots []Spot
	for i := range n {
		spots = append(spots, Spot{fmt.Sprintf("127.0.0.%d", i+1), ns.Do})
	}
	return Start(t, spots, flags...), ns
}

func newMember(t testing.TB, n int, s Spot, initial string, flags []string) *Member {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fairlead-etcd-")
	if err != nil {
		t.Fatal(err)
	}
	m := &Member{Host: s.Host, In: s.In, t: t, data: filepath.Join(dir, "data")}
	client, peer := m.Endpoint(), fmt.Sprintf("http://%s:%d", s.Host, peerPort)
	m.args = append([]string{"--name", fmt.Sprint("m", n), "--data-dir", m.data, "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", initial,
		"--heartbeat-interval", "20", "--election-timeout", "200", "--logger", "zap", "--log-level", "error"}, flags...)
	t.Cleanup(func() {
		m.Kill()
		if t.Failed() && m.log.Len() > 0 {
			t.Logf("etcd at %s:\n%s", m.Host, m.log.Bytes())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Endpoint returns the URL for clients of the member.
func (m *Member) Endpoint() string { return fmt.Sprintf("http://%s:%d", m.Host, ClientPort) }

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() (urls []string) {
	for _, m := range c.Members {
		urls = append(urls, m.Endpoint())
	}
	return urls
}

// Start starts the member with the data that it has.
func (m *Member) Start() {
	m.t.Helper()
	program := "etcd"
	if dir := os.Getenv("FAIRLEAD_TEST_ETCD"); dir != "" {
		program = filepath.Join(dir, "etcd")
	}
	m.cmd = exec.Command(program, m.args...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	// The kernel sends the signal when the thread that has started the process ends, so this thread
	// waits for the process.
	go func() {
		defer close(ended)
		started <- m.In(func() error {
			if err := m.cmd.Start(); err != nil {
				return err
			}
			started <- nil
			_ = m.cmd.Wait() // it ends by a signal
			return nil
		})
	}()
	if err := <-started; err != nil {
		m.t.Fatalf("start etcd: %v", err)
	}
	go func() { <-started }()
	m.ended = ended
}

// Kill ends the member with SIGKILL, and waits until it has ended.
func (m *Member) Kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill() // it may have ended
		<-m.ended
		m.cmd = nil
	}
}

// Stop stops the member's process until Continue is called. When it returns, no thread runs.
func (m *Member) Stop() { process.Pause(m.t, m.cmd.Process.Pid) }

// Continue continues a stopped process.
func (m *Member) Continue() {
	m.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		m.t.Fatalf("continue etcd: %v", err)
	}
}

// Client returns a client of these members only, until the test ends.
func Client(t testing.TB, members ...*Member) *clientv3.Client {
	t.Helper()
	var urls []string
	for _, m := range members {
		urls = append(urls, m.Endpoint())
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, Logger: zap.NewNop(),
		DialOptions: dialOptions(members[0].In)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Leader waits until a member is the leader, and returns it.
func (c *Cluster) Leader() *Member {
	c.t.Helper()
	for end := time.Now().Add(place.Timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, m := range c.Members {
			if m.cmd != nil && m.isLeader() {
				return m
			}
		}
	}
	c.t.Fatal("etcd has no leader")
	return nil
}

// isLeader reports whether the member is the leader and answers.
func (m *Member) isLeader() bool {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint()}, Logger: zap.NewNop(),
		DialOptions: dialOptions(m.In)})
	if err != nil {
		return false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	status, err := c.Status(ctx, m.Endpoint())
	if err != nil || status.Leader != status.Header.MemberId {
		return false
	}
	_, err = c.Get(ctx, "leader") // it has a quorum
	return err == nil
}
