package dashboard_test

import (
	"bufio"
	"context"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/gateway/view"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/daemons"
	"fairlead/test/shell"
)

// host is a throwaway host with a daemon that has a service without a check, whose one server is drained.
func host(t *testing.T) (*daemons.Daemon, *netns.Namespace) {
	t.Helper()
	at := kerneltest.Netns(t)
	shell.Run(t, at.Do, "ip link set lo up && ip link add eth0 type veth peer name peer && "+
		"ip addr add 192.0.2.1/24 dev eth0 && ip link set eth0 up && ip link set peer up")
	order := daemons.In(t.TempDir())
	order.Dashboard, order.Version = "unix:"+filepath.Join(filepath.Dir(order.Socket), "d"), "devel"
	d := daemons.New(t, order, child.Place{Netns: at.File()})
	d.Run("service", "add", "web", "192.0.2.80:80", "--plane", "nft", "--real", "192.0.2.7:8080")
	d.Run("service", "drain", "web", "192.0.2.7:8080")
	return d, at
}

// overUnix returns a client that connects to a unix socket, whatever the name of the host.
func overUnix(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
}

// inside returns a client that connects from the namespace of the host.
func inside(at *netns.Namespace) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = at.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		}}}
}

// text returns the text of a page.
func text(t *testing.T, c *http.Client, url, cookie string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var b strings.Builder
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		b.WriteString(lines.Text() + "\n")
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s\n%.300s", url, answer.Status, b.String())
	}
	return strings.Join(strings.Fields(htmlText(t, b.String())), " ")
}

// TestDaemonServesItsDashboard: every page of a real daemon is shown without a script, and has the facts of the host.
func TestDaemonServesItsDashboard(t *testing.T) {
	d, _ := host(t)
	c := overUnix(strings.TrimPrefix(d.Dashboard, "unix:"))
	for path, want := range map[string][]string{
		"/":                 {"real server 192.0.2.7:8080 of web", "a command requested it"},
		"/services":         {"192.0.2.7:8080", "web", "drain"},
		"/service?name=web": {"192.0.2.80:80", "nft", "a command requested it", "fairlead service show web"},
		"/events":           {"draining", "service web real 192.0.2.7:8080"},
		"/paths":            {"bridge+nat", "can be built", "There is no network"},
		"/flows":            {"conntrack", "192.0.2.7:8080"},
		"/routers":          {"The daemon runs no gateway"},
		"/certificates":     {"The daemon runs no gateway"},
		"/cluster":          {"This host belongs to no cluster"},
		"/lab":              {"Laboratory"},
		"/explain?from=192.0.2.9&to=192.0.2.80:80": {"The flow as a picture",
			"fairlead explain 192.0.2.9 to 192.0.2.80:80"},
	} {
		got := eventually(t, c, path)
		for _, fact := range want {
			if !strings.Contains(got, fact) {
				t.Errorf("%s has no %q:\n%.1500s", path, fact, got)
			}
		}
	}
	if got := eventually(t, c, "/ports"); !strings.Contains(got, "service web") {
		t.Errorf("/ports has no port of the service:\n%.1000s", got)
	}
}

// declared is a gateway with a router that serves, and one whose middleware no container has.
const declared = `
gateway:
  entryPoints: {web: {address: "192.0.2.1:8000"}}
  providers: {docker: {endpoint: "unix://DIR/no-engine"}}
  http:
    routers:
      sound: {rule: "Host(` + "`sound.example.com`" + `)", service: site}
      faulty: {rule: "Host(` + "`faulty.example.com`" + `)", service: site, middlewares: ["absent@docker"]}
    services:
      site: {loadBalancer: {servers: [{url: "http://127.0.0.1:1"}]}}
`

// TestGatewayReportsWhatIsWrong: the first page asks the daemon's gateway, a process of its own, for what is wrong, and
// gets no router that serves.
func TestGatewayReportsWhatIsWrong(t *testing.T) {
	d, _ := host(t)
	file := filepath.Join(t.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(declared, "DIR", filepath.Dir(file))), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Run("apply", "-f", file)
	for query, want := range map[string]string{"": "faulty@file sound@file", "?" + view.ParamWrong: "faulty@file"} {
		var raw view.RawData
		err := d.Client.Gateway(t.Context(), "/api/rawdata"+query, &raw)
		if got := strings.Join(slices.Sorted(maps.Keys(raw.Routers)), " "); err != nil || got != want {
			t.Errorf("/api/rawdata%s: routers %s, want %s; %v", query, got, want, err)
		}
	}
	got := eventually(t, overUnix(strings.TrimPrefix(d.Dashboard, "unix:")), "/")
	if !strings.Contains(got, "router faulty@file: middleware absent@docker") || strings.Contains(got, "sound@file") {
		t.Errorf("the first page shows:\n%.2000s", got)
	}
}

// eventually returns the text of a page as soon as the host is read.
func eventually(t *testing.T, c *http.Client, path string) string {
	t.Helper()
	for {
		if got := text(t, c, "http://localhost"+path, ""); !strings.Contains(got, "The host is being read.") {
			return got
		}
	}
}

// TestDaemonIsKilled: after kill -9 of the daemon, the page of `fairlead dashboard` says since when it is stale, and
// keeps what was read last. When the daemon runs again, the page is up to date again.
func TestDaemonIsKilled(t *testing.T) {
	d, at := host(t)
	url, cookie := command(t, d, at)
	c := inside(at)
	before := text(t, c, url+"/services", cookie)
	if !strings.Contains(before, "The daemon answers.") || !strings.Contains(before, "192.0.2.7:8080") {
		t.Fatalf("with a daemon: %.1000s", before)
	}
	d.Kill()
	for {
		got := text(t, c, url+"/services", cookie)
		if strings.Contains(got, "The daemon answers.") {
			continue // it is not read again yet
		}
		if !strings.Contains(got, "Stale since ") || !strings.Contains(got, "192.0.2.7:8080") {
			t.Errorf("after kill -9: %.1000s", got)
		}
		break
	}
	d.Start()
	for !strings.Contains(text(t, c, url+"/services", cookie), "The daemon answers.") {
	}
}

// command runs `fairlead dashboard` on the host, and returns its URL and the cookie of the one browser.
func command(t *testing.T, d *daemons.Daemon, at *netns.Namespace) (url, cookie string) {
	t.Helper()
	lines := d.Begin(t, "dashboard", "--socket", d.Socket)
	if !lines.Scan() {
		t.Fatal("the command prints no URL")
	}
	whole := strings.TrimPrefix(lines.Text(), "Open ")
	c := inside(at)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := c.Get(whole)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	url, _, _ = strings.Cut(whole, "/?")
	return url, cookieOf(answer)
}
