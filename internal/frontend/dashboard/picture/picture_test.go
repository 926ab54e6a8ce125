package picture_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/explain/flow"
	"fairlead/internal/frontend/dashboard/picture"
)

var update = flag.Bool("update", false, "write the golden files")

// published is a flow through a published port into a sandbox.
func published() flow.Explanation {
	return flow.Explanation{Flow: "192.0.2.7 -> :8080", Outcome: flow.Delivered, Verdict: "delivered to shop",
		Hops: []flow.Hop{
			{Number: 1, Kind: flow.Begin, Where: "host", Link: "eth0", What: "arrives from the LAN"},
			{Number: 2, Kind: flow.NAT, Where: "host", What: "translated to 10.0.0.2:80",
				By: "inet fairlead prerouting: dnat to numgen inc mod 1 map { 0 : 10.0.0.2 . 80 }"},
			{Number: 3, Kind: flow.Link, Where: "shop", Link: "fl-web", What: "enters the sandbox", Seen: "seen"},
			{Number: 4, Kind: flow.Delivery, Where: "shop", What: "nginx (7) listens at 0.0.0.0:80"}}}
}

// dropped is a flow to another node, which drops it.
func dropped() flow.Explanation {
	e := published()
	e.Hops = e.Hops[:2]
	e.Outcome, e.Verdict = flow.Leaves, "it leaves this host"
	e.Further = &api.FlowPart{Node: "host2", Steps: []api.FlowStep{{Where: "host", Link: "eth0", What: "arrives"},
		{Where: "host", What: "dropped", By: "inet filter input: policy drop"}}}
	return e
}

// TestGoldens: the picture of a flow has a lane per namespace and a box per hop.
func TestGoldens(t *testing.T) {
	for name, e := range map[string]flow.Explanation{"published": published(), "further": dropped()} {
		file := "testdata/" + name + ".svg"
		got := string(picture.Of(e)) + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test -update writes it):\n%s", file, got)
		}
	}
}

// TestHostileTexts: no text breaks the picture out of its element, or makes it larger than its lines.
func TestHostileTexts(t *testing.T) {
	for _, text := range []string{"</text></svg><script>", strings.Repeat("x", 10_000), strings.Repeat("a b ", 3000),
		"\u202e\x1b\xff", "&<>\"'"} {
		e := published()
		for i := range e.Hops {
			e.Hops[i].Where, e.Hops[i].What, e.Hops[i].By, e.Hops[i].Link = text, text, text, text
		}
		e.Flow, e.Verdict = text, text
		drawn := string(picture.Of(e))
		if len(drawn) > 50_000 && len(text) < 10_000 {
			t.Errorf("%.20q: the picture has %d bytes", text, len(drawn))
		}
		for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%.20q: %v", text, err)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "script" {
				t.Errorf("%.20q: the picture has a script", text)
			}
		}
	}
}
