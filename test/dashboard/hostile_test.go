package dashboard_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/gateway/view"
	"fairlead/internal/model"

	"golang.org/x/net/html"
)

// hostile are names that a container, a label, a neighbour or a server can choose.
var hostile = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	"x\u202egnp.exe\u2066\u200b\x1b[31m", strings.Repeat("long", 2500), `</script></style></svg><iframe src=//x>`,
	`javascript:alert(1)`, `{{.Site}}`, "\xff\xfe"}

// fill sets every text of a value to a name.
func fill(v reflect.Value, name string, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(name)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, depth+1)
	case reflect.Struct:
		switch at := v.Addr().Interface().(type) {
		case *netip.Addr:
			*at = netip.MustParseAddr("192.0.2.1")
			return
		case *netip.AddrPort:
			*at = netip.MustParseAddrPort("192.0.2.1:80")
			return
		case *netip.Prefix:
			*at = netip.MustParsePrefix("192.0.2.1/24")
			return
		case *time.Time:
			*at = time.Now()
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), name, depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), name, depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, name, depth+1)
		fill(value, name, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

// filled returns a value with a name in each text.
func filled[T any](name string) (v T) {
	fill(reflect.ValueOf(&v).Elem(), name, 0)
	return v
}

// hostileHost is a host on which everything has the name.
func hostileHost(t *testing.T, name string) (*fake, *room) {
	t.Helper()
	s := filled[api.ServiceView](name)
	s.Ports, s.Proto, s.Servers[0].State, s.Servers[1].State = []model.PortRange{model.Port(80)}, model.TCP,
		api.RealDown,
		api.RealDraining
	web := s
	web.Name = "web"
	raw := filled[view.RawData](name)
	f := newFake(t, map[string]any{
		"/v1/services":            admin.Services{Services: []api.ServiceView{s, web}},
		"/v1/events":              filled[admin.Events](name),
		"/v1/attachments":         filled[admin.Attachments](name),
		"/v1/networks":            admin.Networks{Unavailable: map[string]string{name: name}},
		"/v1/stats":               filled[api.Stats](name),
		"/v1/cluster":             filled[api.ClusterStatus](name),
		"/v1/cluster/bgp":         filled[admin.ClusterBGPSessions](name),
		"/v1/gateway/api/rawdata": raw,
	})
	r := &room{explanation: filled[flow.Explanation](name)}
	port := filled[ports.Port](name)
	r.host.Ports, r.host.Unseen = []ports.Port{port}, []string{name}
	r.host.Attachments = filled[[]api.View](name)
	return f, r
}

// TestHostileNames: no name becomes markup on any page, changes the direction of text, or is cut off from the reader.
func TestHostileNames(t *testing.T) {
	for _, name := range hostile {
		f, r := hostileHost(t, name)
		at := served(t, f, func(o *dashboard.Options) { o.Host, o.Actions, o.Name = r, true, name })
		shown := false
		for _, path := range pages {
			answer, text := get(t, at.URL+path)
			if answer.StatusCode != 200 {
				t.Fatalf("%s with %.30q: %s\n%.500s", path, name, answer.Status, text)
			}
			onlyOurMarkup(t, path, name, text)
			shown = shown || strings.Contains(htmlText(t, text), escape.Line(strings.ToValidUTF8(name, "\ufffd")))
		}
		if !shown {
			t.Errorf("no page shows the name %.40q", name)
		}
	}
}

// elements are those that the pages use.
var elements = []string{"html", "head", "body", "meta", "title", "link", "script", "a", "header", "span", "nav", "ul",
	"li", "main", "footer", "h1", "h2", "p", "code", "section", "form", "label", "input", "button", "div", "table",
	"caption", "thead", "tbody", "tr", "th", "td", "time", "strong", "ol", "br", "svg", "rect", "text", "path",
	"figure",
	"figcaption", "details", "summary"}

// onlyOurMarkup fails if a document has elements, scripts, handlers or hidden characters that are not the dashboard's.
func onlyOurMarkup(t *testing.T, path, name, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s with %.30q: the page is not UTF-8", path, name)
	}
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		switch n.Type {
		case html.TextNode:
			for _, c := range n.Data {
				if c != '\n' && escape.Hidden(c) {
					t.Errorf("%s with %.30q: the text %.60q has a hidden character", path, name, n.Data)
				}
			}
		case html.ElementNode:
			if !slices.Contains(elements, n.Data) {
				t.Errorf("%s with %.30q: the page has an element %s", path, name, n.Data)
			}
			checkAttributes(t, path, name, n)
		}
	}
}

func checkAttributes(t *testing.T, path, name string, n *html.Node) {
	t.Helper()
	for _, a := range n.Attr {
		value := strings.ToLower(strings.TrimSpace(a.Val))
		switch {
		case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "srcdoc":
			t.Errorf("%s with %.30q: <%s> has the attribute %s", path, name, n.Data, a.Key)
		case a.Key == "href" || a.Key == "src" || a.Key == "action":
			if !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "#") || strings.HasPrefix(value, "//") {
				t.Errorf("%s with %.30q: <%s %s=%.60q> links to another site", path, name, n.Data, a.Key, a.Val)
			}
		}
	}
	if n.Data == "script" && n.FirstChild != nil {
		t.Errorf("%s with %.30q: a script is in the page", path, name)
	}
}

// htmlText returns the text of a document.
func htmlText(t *testing.T, text string) string {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}
