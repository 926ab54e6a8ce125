package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
	"fairlead/test/authority"
	"fairlead/test/features"
	"fairlead/test/place"
)

// command matches a command of the example: the host and what it runs.
var command = regexp.MustCompile(`(?m)^(host[123]|each|client)# (.*)$`)

const (
	exampleDir = "../../examples/cluster"
	// exampleAddress is the virtual address of the example.
	exampleAddress = "192.0.2.100"
)

// example is the hosts of the example, with a client and the authority of their certificates.
type example struct {
	*lan
	hosts     []*dockerHost
	client    *netns.Namespace
	authority *authority.Authority
	// instead has pairs of what commands contain and what the test runs instead.
	instead []string
	// running are the hosts whose container runs.
	running []string
}

// TestExample runs the commands of examples/cluster with a Docker engine on each host. On a kernel without
// WireGuard, the network is not encrypted: TestEncryptedNetwork is, in test/vm. Clients reach the containers of all hosts at
// the virtual address, also after the daemon of the host that holds it was killed, and via the gateway of each
// host, with the same certificate.
func TestExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(exampleDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := command.FindAllStringSubmatch(string(text), -1)
	if len(commands) < 22 {
		t.Fatalf("the example has the commands %q", commands)
	}
	e := newExample(t)
	for _, c := range commands {
		e.run(c[1], c[2])
	}
	for _, h := range e.hosts {
		h.until("valid", h.dir+"/fairlead gateway certificates")
	}
	serial := ""
	for n := range e.hosts {
		got := e.served(fmt.Sprintf("192.0.2.%d:443", n+1), "https://shop.example.com")
		if serial != "" && got != serial {
			t.Errorf("host%d has the certificate %s, want %s", n+1, got, serial)
		}
		serial = got
	}
	if n := e.authority.Orders(); n != 1 {
		t.Errorf("the hosts have ordered %d certificates", n)
	}
	if said := e.hosts[0].run("fairlead cluster status"); strings.Count(said, "alive") != 3 ||
		!strings.Contains(said, exampleAddress) {
		t.Errorf("at the end the cluster is\n%s", said)
	}
}

func newExample(t *testing.T) *example {
	t.Helper()
	facts := features.Facts(t)
	l := newEmptyLAN(t, 1)
	e := &example{lan: l, hosts: l.dockerHosts(programs(t), "", "", ""), client: l.connected(50)}
	e.authority = authority.Start(t, authority.Order{Address: "192.0.2.60:14000", Names: exampleAddress},
		child.Place{Netns: l.connected(60).File()})
	e.instead = []string{"curl -s http://", "/program ask http ", "gateway.yaml", e.gateway()}
	for _, name := range []string{"service.yaml", "shop.yaml"} {
		file, err := filepath.Abs(filepath.Join(exampleDir, name))
		if err != nil {
			t.Fatal(err)
		}
		e.instead = append(e.instead, name, file)
	}
	if !facts.Has(plan.FeatureWireGuard) {
		e.instead = append(e.instead, " --encrypt", "")
	}
	return e
}

// gateway returns the path of the example's file, with a resolver that asks the authority of the test.
func (e *example) gateway() string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(exampleDir, "gateway.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	const last = "storage: cluster\n"
	with := fmt.Sprintf("%s        caServer: %q\n        caCertificates: [%q]\n        caServerName: example.com\n",
		last, e.authority.URL, e.authority.Roots)
	file := filepath.Join(e.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), last, with, 1)), 0o644); err != nil {
		e.Fatal(err)
	}
	return file
}

// run runs a command on a host, on each host or as a client. The containers answer with the name of their host.
func (e *example) run(on, line string) {
	e.Helper()
	line = strings.NewReplacer(append(e.instead, "nginxinc/nginx-unprivileged",
		"program serve name:"+on+" http:8080")...).Replace(line)
	_, secure, isSecure := strings.Cut(line, "https://")
	switch {
	case isSecure:
		e.served(exampleAddress+":443", "https://"+secure)
	case on == "client":
		_, at, _ := strings.Cut(line, "ask http ")
		e.served(at, "http://"+at)
		e.withoutHolder(func() { e.served(at, "http://"+at) })
	case on == "each":
		for _, h := range e.hosts {
			h.run(line)
		}
	case strings.HasPrefix(line, "docker stop"):
		e.unfailing(line, func() { e.hosts[on[4]-'1'].run(line) })
		e.running = slices.DeleteFunc(e.running, func(h string) bool { return h == on })
	default:
		said := e.hosts[on[4]-'1'].run(line)
		if strings.Contains(line, "token create") {
			e.instead = append(e.instead, "TOKEN", said)
		}
	}
	if strings.HasPrefix(line, "docker run") {
		e.running = append(e.running, on)
	}
}

// withoutHolder kills the daemon of the host that holds the virtual address, until do returns. Another host takes
// the address.
func (e *example) withoutHolder(do func()) {
	e.Helper()
	holder := func(on *dockerHost) string {
		return on.sh(on.dir + "/fairlead cluster address ls | awk '$1 ~ /^" + exampleAddress + "/ { print $2 }'")
	}
	first := holder(e.hosts[0])
	i := int(first[len("host")] - '1')
	other := e.hosts[(i+1)%len(e.hosts)]
	e.hosts[i].kill()
	e.until("another host has the address", func() bool {
		h := holder(other)
		return h != first && strings.HasPrefix(h, "host")
	})
	do()
	e.hosts[i].start()
}

// served waits until 12 requests in turn for a URL at an address were answered by the containers of exactly the
// hosts where one runs. It returns the serial number of the last certificate.
func (e *example) served(at, url string) (serial string) {
	e.Helper()
	var got []string
	e.Cleanup(func() {
		if e.Failed() {
			e.Logf("the last answers at %s were those of %q, want %q", at, got, e.running)
		}
	})
	e.until(fmt.Sprintf("containers of %v answer at %s", e.running, at), func() bool {
		got = nil
		for range 12 {
			who, with, err := e.visit(at, url)
			if err != nil {
				who = err.Error()
			}
			serial = with
			if !slices.Contains(got, who) {
				got = append(got, who)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, e.running)
	})
	return serial
}

// unfailing sends requests to the holder of the virtual address until during returns. None of them may fail.
func (e *example) unfailing(what string, during func()) {
	e.Helper()
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for asked := 0; ; asked++ {
			select {
			case <-over:
				e.Logf("%s: %d requests", what, asked)
				return
			default:
			}
			if _, _, err := e.visit(exampleAddress+":443", "https://shop.example.com"); err != nil {
				e.Errorf("%s: request %d: %v", what, asked, err)
			}
		}
	}()
	defer func() { close(over); <-ended }()
	during()
}

// visit returns the answer to a client's request for a URL that it sends to an address, and the serial number
// of the server's certificate.
func (e *example) visit(at, url string) (answer, serial string, err error) {
	e.Helper()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: e.authority.Root},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return place.Dial(e.client.Do, "tcp", at, place.Timeout)
		}}
	r, err := (&http.Client{Transport: transport, Timeout: place.Timeout}).Get(url)
	if err != nil {
		return "", "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	if r.TLS != nil {
		serial = r.TLS.PeerCertificates[0].SerialNumber.String()
	}
	return string(body), serial, err
}

// run runs a command as a user of the host does.
func (h *dockerHost) run(line string) string {
	h.Helper()
	return h.sh("export PATH=" + h.dir + ":$PATH\n" + line)
}
