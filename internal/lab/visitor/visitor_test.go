package visitor

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/lab/certificate"
	"fairlead/internal/lab/website"
)

const host = "www.lab.test"

// serve starts a site with HTTP/1.1 and HTTP/2 over TLS, and returns an order for it.
func serve(t *testing.T, h http.Handler) Order {
	t.Helper()
	cert, err := certificate.New(host)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go s.ServeTLS(l, "", "")
	t.Cleanup(func() { s.Close() })
	return Order{Target: netip.MustParseAddrPort(l.Addr().String()), Host: host, Chain: cert.Chain, Pages: 2,
		Plan: Plan{Arrivals: Poisson, Rate: 200, Count: 30, Mix: Mix{1, 1, 1}, Seed: 7}, Probe: true}
}

// pages answers with the resources of the site; change may change a body.
func pages(change func(path string, body []byte) []byte) http.Handler {
	site := website.New(2)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(change(r.URL.Path, site.Body(r.URL.Path)))
	})
}

func unchanged(_ string, body []byte) []byte { return body }

func visitAll(t *testing.T, o Order) Visits {
	t.Helper()
	tourist, err := newTourist(o)
	if err != nil {
		t.Fatal(err)
	}
	return tourist.run(nil)
}

// TestVisitorsFetchEveryByte: each kind of visitor fetches its pages with all assets.
func TestVisitorsFetchEveryByte(t *testing.T) {
	t.Parallel()
	o := serve(t, pages(unchanged))
	got := visitAll(t, o)
	kinds := map[Kind]int{}
	for i, v := range got.Visits {
		kinds[v.Kind]++
		want := 1 + 2 + website.Images
		if v.Kind == Crawl {
			want = 2*(1+website.Images) + 2
		}
		if v.Err != "" || v.Failed > 0 || v.Requests != want || v.Bytes == 0 || v.First == 0 || v.Ended < v.First ||
			v.Started < v.Intended || i > 0 && v.Intended < got.Visits[i-1].Intended {
			t.Errorf("visit %d: %+v, want %d requests", i, v, want)
		}
	}
	if len(got.Visits) != o.Plan.Count || len(kinds) != 3 || len(got.Probes) == 0 {
		t.Errorf("%d visits of %v, %d probes", len(got.Visits), kinds, len(got.Probes))
	}
	s, failed := got.Describe()
	if s.Failed > 0 || len(failed) > 0 || s.Visit.P50 <= 0 || s.Visit.P99 < s.Visit.P50 || s.Concurrent == 0 ||
		len(s.Samples) == 0 {
		t.Errorf("%+v, %v", s, failed)
	}
}

// TestVisitorsFindWrongBytes: a byte that differs, a body that ends early, a status.
func TestVisitorsFindWrongBytes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(string, []byte) []byte{
		"differs from": func(path string, body []byte) []byte {
			if path == "/style.css" {
				return append(append([]byte{}, body[:len(body)-1]...), '!')
			}
			return body
		},
		"ends early": func(path string, body []byte) []byte {
			if path == "/script.js" {
				return body[:len(body)-1]
			}
			return body
		},
	} {
		o := serve(t, pages(change))
		o.Plan.Count = 6
		got := visitAll(t, o)
		for _, v := range got.Visits {
			if !strings.Contains(v.Err, name) || v.Failed == 0 {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
	o := serve(t, http.NotFoundHandler())
	o.Plan.Count = 3
	if s, failed := visitAll(t, o).Describe(); s.Failed != 3 || failed["status 404"] != 3 {
		t.Errorf("%+v, %v", s, failed)
	}
}

// TestStartsDoNotWaitForVisits: a site that answers nothing delays no start.
func TestStartsDoNotWaitForVisits(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	all := make(chan struct{})
	const count = 20
	site := pages(unchanged)
	o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/page-") && strings.HasSuffix(r.URL.Path, ".html") {
			if asked.Add(1) == count {
				close(all)
			}
			<-all // every visit is in progress before one goes on
		}
		site.ServeHTTP(w, r)
	}))
	o.Plan = Plan{Arrivals: Fixed, Rate: 1000, Count: count, Mix: Mix{BrowserH2: 1}}
	o.Probe = false
	s, failed := visitAll(t, o).Describe()
	if s.Concurrent != count || s.Failed > 0 {
		t.Errorf("%d visits at the same time, want %d; %v", s.Concurrent, count, failed)
	}
}

func TestScheduleDependsOnItsSeedOnly(t *testing.T) {
	t.Parallel()
	p := Plan{Arrivals: Poisson, Rate: 100, Count: 5000, Mix: Mix{Crawl: 1, BrowserH1: 3}, Seed: 3}
	a, b := p.Schedule(10), p.Schedule(10)
	if !reflect.DeepEqual(a, b) {
		t.Error("two schedules of one plan differ")
	}
	crawls := 0
	for _, s := range a {
		if s.Kind == Crawl {
			crawls++
		}
	}
	if last := a[len(a)-1].At; last < 45*time.Second || last > 55*time.Second || crawls < 1100 || crawls > 1400 {
		t.Errorf("the last start is at %s, %d crawlers", last, crawls)
	}
	p.Arrivals = Fixed
	if at := p.Schedule(10)[4999].At; at != 49990*time.Millisecond {
		t.Errorf("the last start at equal distances is at %s", at)
	}
	for _, bad := range []Plan{{}, {Arrivals: Fixed, Rate: 1, Count: 1},
		{Arrivals: Fixed, Count: 1, Mix: Mix{Crawl: 1}},
		{Arrivals: "x", Rate: 1, Count: 1, Mix: Mix{Crawl: 1}}, {Arrivals: Fixed, Rate: 1, Mix: Mix{Crawl: 1}}} {
		if bad.Check() == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

// TestSlope: the number of visits in progress grows by the visits that do not end.
func TestSlope(t *testing.T) {
	t.Parallel()
	steady, growing := Visits{}, Visits{}
	for i := range 1000 {
		at := time.Duration(i) * 10 * time.Millisecond
		steady.Visits = append(steady.Visits, Visit{Intended: at, Ended: at + 50*time.Millisecond})
		growing.Visits = append(growing.Visits, Visit{Intended: at, Ended: 2 * at})
	}
	if s := steady.Slope(); s > 0.5 || s < -0.5 {
		t.Errorf("a steady site: %f per second", s)
	}
	if s := growing.Slope(); s < 45 || s > 55 { // half of 100 visits per second
		t.Errorf("a site that carries half of the visits: %f per second", s)
	}
}
