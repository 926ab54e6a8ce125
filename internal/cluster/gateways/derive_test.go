package gateways_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/cluster/gateways"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
	"fairlead/internal/process/hosted"
)

// shop selects the sandboxes of network shop.
var shop = model.Select{Network: "shop"}

// records are those of a cluster with the nodes a, b and c, and network shop, in which each of them has a block.
func records() map[string][]byte {
	all := map[string][]byte{
		record.Key(record.Networks, "shop"): record.Encode(record.Network{Spec: model.Network{Name: "shop",
			Driver: model.DriverVXLAN, Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}},
			BlockBits: []int{24}}),
	}
	for i, id := range []string{"a", "b", "c"} {
		all[record.Key(record.Nodes, id)] = record.Encode(record.Node{ID: id, Name: "host-" + id})
		all[record.Key(record.Blocks, "shop", fmt.Sprintf("10.9.%d.0/24", i))] = record.Encode(record.Block{Node: id})
	}
	return all
}

// object returns the record of an object.
func object(text string) []byte {
	return record.Encode(record.GatewayObject{Spec: json.RawMessage(text), Set: "site"})
}

// sandbox adds a sandbox of a node that selector shop has found.
func sandbox(all map[string][]byte, node, name string, s record.SelectedSandbox) {
	all[record.Key(record.Selected, record.SelectorHash(shop), node, name)] = record.Encode(s)
}

func derive(t *testing.T, all map[string][]byte) (*model.ClusterGateway, []string) {
	t.Helper()
	var entries []kv.Entry
	for key, value := range all {
		entries = append(entries, kv.Entry{Key: key, Value: value, Revision: 7})
	}
	return gateways.NewDeriver("a", hosted.SizeOfExpressions).Derive(kv.NewTable(7, entries))
}

// TestServers derives the servers of services: this node's are selected, those of other nodes have addresses.
func TestServers(t *testing.T) {
	all := records()
	all["gateway/http.services/web"] = object(`{"LoadBalancer":{"Servers":[
		{"URL":"http://192.0.2.1"},{"Network":"shop","Port":"8080","Scheme":"https"}]}}`)
	all["gateway/tcp.services/db"] = object(`{"LoadBalancer":{"Servers":[{"Network":"shop","Port":"5432","TLS":true}]}}`)
	all["gateway/udp.services/dns"] = object(`{"LoadBalancer":{"Servers":[{"Network":"shop","Port":"53"}]}}`)
	sandbox(all, "a", "mine", record.SelectedSandbox{Address: netip.MustParseAddr("10.9.0.9")})
	sandbox(all, "b", "up", record.SelectedSandbox{Address: netip.MustParseAddr("10.9.1.9")})
	sandbox(all, "b", "leaves", record.SelectedSandbox{Address: netip.MustParseAddr("10.9.1.10"), Draining: true})
	sandbox(all, "c", "starts", record.SelectedSandbox{Address: netip.MustParseAddr("10.9.2.9"),
		Down: "it is starting"})
	sandbox(all, "gone", "left", record.SelectedSandbox{Address: netip.MustParseAddr("10.9.2.10")})
	c, problems := derive(t, all)
	if len(problems) > 0 || len(c.Problems) > 0 {
		t.Fatalf("problems: %q, %+v", problems, c.Problems)
	}
	shown := func(s gateway.Server) string {
		return strings.TrimSpace(fmt.Sprintf("%s%s:%s %v %s", s.URL, s.Network, s.Port, s.Fenced, s.Down))
	}
	want := []string{"http://192.0.2.1: false", "shop:8080 false", "https://10.9.1.9:8080: false",
		"https://10.9.1.10:8080: true", "https://10.9.2.9:8080: false it is starting"}
	equal(t, want, texts(c.Config.HTTP.Services["web"].LoadBalancer.Servers, shown))
	equal(t, []string{"shop:5432", "10.9.1.9:5432:"}, texts(c.Config.TCP.Services["db"].LoadBalancer.Servers,
		func(s gateway.TCPServer) string { return s.Address + s.Network + ":" + s.Port }))
	equal(t, []string{"shop:53", "10.9.1.9:53:"}, texts(c.Config.UDP.Services["dns"].LoadBalancer.Servers,
		func(s gateway.UDPServer) string { return s.Address + s.Network + ":" + s.Port }))

	// A drained node's sandboxes get only requests of their sessions, on all nodes.
	for _, id := range []string{"a", "b"} {
		all[record.Key(record.Nodes, id)] = record.Encode(record.Node{ID: id, Drained: true})
	}
	c, _ = derive(t, all)
	want = []string{"http://192.0.2.1: false", "shop:8080 true", "https://10.9.1.9:8080: true",
		"https://10.9.1.10:8080: true", "https://10.9.2.9:8080: false it is starting"}
	equal(t, want, texts(c.Config.HTTP.Services["web"].LoadBalancer.Servers, shown))
	if s := c.Config.TCP.Services["db"].LoadBalancer.Servers; len(s) > 0 {
		t.Errorf("TCP servers of drained nodes: %+v", s)
	}
}

func texts[T any](all []T, text func(T) string) (texts []string) {
	for _, one := range all {
		texts = append(texts, text(one))
	}
	return texts
}

func equal(t *testing.T, want, got []string) {
	t.Helper()
	if !slices.Equal(want, got) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestHostileRecords derives records that a node with bad intentions has written. Each one disables its own object,
// and no one names a file of the host.
func TestHostileRecords(t *testing.T) {
	tooLong := "http.routers/" + strings.Repeat("a", 129)
	pem := `-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----`
	for key, c := range map[string]struct{ text, want string }{
		"http.routers/not-json":         {`7`, "cannot unmarshal"},
		"http.routers/unknown":          {`{"Rule":"Host()","Limit":3}`, "unknown field"},
		"http.routers/a@internal":       {`{}`, "want at most 128 letters"},
		"http.routers/a/b":              {`{}`, "want at most 128 letters"},
		"http.routers/":                 {`{}`, "want at most 128 letters"},
		"http.routers/\x1b[2J":          {`{}`, "want at most 128 letters"},
		tooLong:                         {`{}`, "want at most 128 letters"},
		"http.routers/huge":             {`{"Rule":"` + strings.Repeat("a", 70_000) + `"}`, "bytes"},
		"http.kinds/x":                  {`{}`, "knows no section"},
		"none":                          {`{}`, "want gateway/SECTION/NAME"},
		"http.middlewares/none":         {`{}`, "it has no kind"},
		"http.middlewares/null":         {`null`, "it has no kind"},
		"http.middlewares/two":          {`{"StripPrefix":{"Prefixes":["/a"]},"Compress":{}}`, "several kinds"},
		"http.middlewares/users":        {`{"BasicAuth":{"UsersFile":"/etc/shadow"}}`, "file of the host"},
		"http.middlewares/digest":       {`{"DigestAuth":{"UsersFile":"/etc/shadow"}}`, "file of the host"},
		"http.middlewares/ca":           {`{"ForwardAuth":{"TLS":{"CA":"/etc/shadow"}}}`, "file of the host"},
		"http.middlewares/key":          {`{"ForwardAuth":{"TLS":{"CA":"` + pem + `","Key":"/k"}}}`, "file of the host"},
		"http.middlewares/hidden":       {`{"ForwardAuth":{"TLS":{"CA":"/x/-----BEGIN"}}}`, "file of the host"},
		"http.serverstransports/ca":     {`{"RootCAs":["/etc/shadow"]}`, "file of the host"},
		"http.serverstransports/cert":   {`{"Certificates":[{"KeyFile":"/etc/shadow"}]}`, "file of the host"},
		"tcp.serverstransports/ca":      {`{"TLS":{"RootCAs":["/etc/shadow"]}}`, "file of the host"},
		"tls.options/ca":                {`{"ClientAuth":{"CAFiles":["/etc/shadow"]}}`, "file of the host"},
		"tls.options/default":           {`{}`, "those of each host"},
		"http.services/virtual":         {`{"LoadBalancer":{"Servers":[{"Service":"web"}]}}`, "want the sandboxes"},
		"http.services/port":            {`{"LoadBalancer":{"Servers":[{"Network":"shop"}]}}`, "want the port"},
		"http.services/badport":         {`{"LoadBalancer":{"Servers":[{"Network":"shop","Port":"80@x"}]}}`, "want a number"},
		"http.services/nonetwork":       {`{"LoadBalancer":{"Servers":[{"Label":"a","Port":"80"}]}}`, "names no network"},
		"http.services/pattern":         {`{"LoadBalancer":{"Servers":[{"Network":"shop","Name":"[","Port":"80"}]}}`, "pattern"},
		"http.services/othernetwork":    {`{"LoadBalancer":{"Servers":[{"Network":"own","Port":"80"}]}}`, "none of the cluster's"},
		"tcp.services/both":             {`{"LoadBalancer":{"Servers":[{"Address":"a:1","Network":"shop"}]}}`, "want address, or"},
		"udp.services/two":              {`{"LoadBalancer":{},"Weighted":{}}`, "several kinds"},
		"http.middlewares/fine-is-fine": {`{"ForwardAuth":{"Address":"http://a","TLS":{"CA":"` + pem + `"}}}`, ""},
	} {
		all := records()
		all["gateway/"+key] = object(c.text)
		all["gateway/http.routers/good"] = object("{\"Rule\":\"Host(`a`)\",\"Service\":\"web\"}")
		got, problems := derive(t, all)
		if got.Config.HTTP.Routers["good"] == nil || len(problems) > 0 {
			t.Errorf("%s: the other router is disabled, problems %q", key, problems)
		}
		switch {
		case c.want == "" && len(got.Problems) > 0:
			t.Errorf("%s: %+v", key, got.Problems)
		case c.want != "" && (len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Text, c.want)):
			t.Errorf("%s: the problems are %+v, want one with %q", key, got.Problems, c.want)
		}
	}
	all := records()
	all["gateway/http.routers/garbage"] = []byte("{")
	if got, _ := derive(t, all); len(got.Problems) != 1 || len(got.Config.HTTP.Routers) > 0 {
		t.Errorf("a record that is no JSON: %+v", got)
	}
}

// TestHostileExpressions derives objects with regular expressions that need more memory than the records of a cluster
// may take. The others of the cluster stay.
func TestHostileExpressions(t *testing.T) {
	large := func(n int) string { return fmt.Sprint(n) + strings.Repeat(".{990}", 5) }
	var many []string
	for i := range 101 {
		many = append(many, large(i))
	}
	list := `["` + strings.Join(many, `","`) + `"]`
	all := records()
	all["gateway/http.routers/a"] = object("{\"Rule\":\"Host(`a`)\"}")
	all["gateway/http.middlewares/strip"] = object(`{"StripPrefixRegex":{"Regex":` + list + `}}`)
	all["gateway/http.middlewares/cors"] = object(`{"Headers":{"AccessControlAllowOriginListRegex":` + list + `}}`)
	for i := range 101 {
		all[fmt.Sprintf("gateway/http.routers/r%03d", i)] = object(fmt.Sprintf("{\"Rule\":\"PathRegexp(`%s`)\"}",
			large(i)))
		all[fmt.Sprintf("gateway/tcp.routers/r%03d", i)] = object(fmt.Sprintf("{\"Rule\":\"HostSNIRegexp(`%s`)\"}",
			large(i)))
	}
	got, _ := derive(t, all)
	if c := got.Config; len(c.HTTP.Middlewares) > 0 || len(c.HTTP.Routers) != 101 || len(c.TCP.Routers) > 0 {
		t.Errorf("it has %d middlewares, %d routers and %d TCP routers", len(c.HTTP.Middlewares), len(c.HTTP.Routers),
			len(c.TCP.Routers))
	}
	for _, p := range got.Problems {
		if !strings.Contains(p.Text, "need more than 1000000 instructions") {
			t.Errorf("%s %s: %s", p.Kind, p.Name, p.Text)
		}
	}
}

// TestHostileSandboxes derives servers whose records have addresses that no sandbox of another node has.
func TestHostileSandboxes(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "192.0.2.1", "10.9.0.0", "10.9.0.1", "10.9.77.1", "::ffff:10.9.1.9",
		"fe80::1%eth0"} {
		all := records()
		all["gateway/http.services/web"] = object(`{"LoadBalancer":{"Servers":[{"Network":"shop","Port":"80"}]}}`)
		sandbox(all, "b", "evil", record.SelectedSandbox{Address: netip.MustParseAddr(address)})
		c, problems := derive(t, all)
		if servers := c.Config.HTTP.Services["web"].LoadBalancer.Servers; len(servers) != 1 || len(problems) != 1 {
			t.Errorf("%s: the servers are %+v, the problems %q", address, servers, problems)
		}
	}
}

// TestNoObjects derives nothing without objects, so that the host forgets earlier ones.
func TestNoObjects(t *testing.T) {
	if c, problems := derive(t, records()); c != nil || len(problems) > 0 {
		t.Errorf("%+v, %q", c, problems)
	}
}
