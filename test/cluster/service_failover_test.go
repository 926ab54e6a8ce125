package cluster_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/lab/failover"
	client "fairlead/test/failover"
	"fairlead/test/place"
	"fairlead/test/process"
)

// silentAlone is how many of 1,000 requests per second fail on average if one of three real servers behind
// one host falls silent. Its checks find that after 0.5 + 1 + 0.25 s: the rest of the interval, a timeout, and
// the start of the second check (docs/guide/balancing.md). A request that begins in the last second of this
// time does not fail: its client repeats the SYN after a second, before failover.AnswerTimeout.
const silentAlone = 750 / 3

// serves adds sandboxes to a host that answer HTTP requests at port 8081 with the host's name.
func (s *site) serves(h *host, count int) {
	s.Helper()
	for range count {
		place.Serve(s, s.box(h).Do, ":8081", func(conn net.Conn) {
			for lines := bufio.NewReader(conn); ; {
				if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) == "" {
					break
				}
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s\n", h.name)
		})
	}
}

// are waits until a host has that many real servers of service web in a state.
func (s *site) are(h *host, state api.RealStatus, count int) {
	s.Helper()
	s.until(fmt.Sprintf("%d real servers are %s", count, state), func() bool {
		v, err := h.Client.Service(s.Context(), "web")
		have := 0
		for _, r := range v.Servers {
			if r.State == state {
				have++
			}
		}
		return err == nil && have == count
	})
}

// requests sends requests to service web until during returns, and returns those that failed, by their start.
func (s *site) requests(rate int, timeout time.Duration, during func()) (failed []failover.Request, asked int) {
	s.Helper()
	return s.requestsTo(vip+":8081", rate, timeout, during)
}

// requestsTo is requests for another target.
func (s *site) requestsTo(target string, rate int, timeout time.Duration, during func()) (failed []failover.Request,
	asked int) {
	s.Helper()
	p := process.Start(s, client.AskRole, client.Question{Target: target, Rate: rate, Timeout: timeout},
		child.Place{Netns: s.client.File()})
	during()
	var all []failover.Request
	if _, err := io.WriteString(p.In, child.Over); err != nil {
		s.Fatal(err)
	}
	if err := json.NewDecoder(p.Out).Decode(&all); err != nil {
		s.Fatal(err)
	}
	if err := p.In.Close(); err != nil {
		s.Fatal(err)
	}
	for _, r := range all {
		if r.Err != "" {
			failed = append(failed, r)
		}
	}
	return failed, len(all)
}

// TestServiceFailover drains a host and cuts another off while clients send requests. FAIRLEAD_SERVICE_RATE
// is their number per second; with it, 30 real servers are on three hosts, and the host is cut off five times.
func TestServiceFailover(t *testing.T) {
	text, large := os.LookupEnv("FAIRLEAD_SERVICE_RATE")
	rate, err := strconv.Atoi(cmp.Or(text, "100"))
	if err != nil {
		t.Fatal(err)
	}
	each, timeout := 2, 30*time.Second // slow answers on a busy machine are no failures
	if large {
		each, timeout = 10, failover.AnswerTimeout
	}
	s := &site{lan: newLAN(t), at: vip}
	s.joined()
	one := s.hosts[0]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	s.client = s.connected(50)
	s.via(one)
	for _, h := range s.hosts {
		s.until(h.name+" has the network", h.has)
		s.serves(h, each)
	}
	one.Run("service", "add", "web", vip+":8081", "--cluster", "--real", "network=shop", "--check", "tcp",
		"--interval", "1s", "--fall", "2", "--rise", "1")
	s.are(one, api.RealUp, 3*each)

	failed, asked := s.requests(rate, timeout, func() {
		one.Run("cluster", "drain", "host2")
		s.are(one, api.RealDraining, each)
		s.answers(one)
		one.Run("cluster", "drain", "host2", "--undo")
		s.are(one, api.RealUp, 3*each)
		s.answers(one)
	})
	t.Logf("drained: %d of %d requests fail", len(failed), asked)
	if len(failed) > 0 || asked == 0 {
		t.Errorf("while a host is drained, %d of %d requests fail: %+v", len(failed), asked, failed[:min(3, len(failed))])
	}

	rounds := 1
	if large {
		rounds = 5
	}
	var lost []int
	for range rounds {
		lost = append(lost, s.killed(rate, timeout, each))
	}
	slices.Sort(lost)
	most := silentAlone * rate / 1000 * 6 / 5 // on a busy machine, checks begin late
	if large && lost[rounds/2] > most {
		t.Errorf("when a host is killed, %v requests fail: want a median of at most %d", lost, most)
	}
}

// killed cuts the last host off while clients send requests, and returns how many fail. Then the host
// returns.
func (s *site) killed(rate int, timeout time.Duration, each int) int {
	s.Helper()
	one := s.hosts[0]
	var out time.Time
	failed, asked := s.requests(rate, timeout, func() {
		kerneltest.Run(s, s.between, "ip", "link", "set", "port3", "down")
		s.are(one, api.RealDown, each)
		out = time.Now()
		s.answers(one)
	})
	s.Logf("killed: %d of %d requests fail", len(failed), asked)
	for _, r := range failed {
		if r.Start > out.UnixNano() {
			s.Errorf("a request fails that began after the real servers were out: %s", r.Err)
		}
	}
	kerneltest.Run(s, s.between, "ip", "link", "set", "port3", "up")
	s.are(one, api.RealUp, len(s.hosts)*each)
	return len(failed)
}

// answers sends requests until 20 in turn were answered.
func (s *site) answers(h *host) {
	s.Helper()
	for n := range 20 {
		conn, err := place.Dial(s.client.Do, "tcp", vip+":8081", place.Timeout)
		if err != nil {
			s.Fatalf("%s does not answer request %d: %v", h.name, n, err)
		}
		conn.Close()
	}
}
