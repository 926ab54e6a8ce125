package overlay_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/test/fabric"
)

// TestDocumentedFileForAllHosts applies the state of the documentation page to every host.
func TestDocumentedFileForAllHosts(t *testing.T) {
	page, err := os.ReadFile("../../docs/paths/vxlan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(page, []byte("```json\n"))
	text, _, _ := bytes.Cut(rest, []byte("```"))
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var s model.State
	if err := decoder.Decode(&s); err != nil {
		t.Fatal(err)
	}
	f := fabric.New(t, fabric.Options{Hosts: 2})
	addrs := everywhere(t, f, s.Networks[0])
	reach(t, f, addrs)
	for i, want := range []string{"10.9.0.1", "10.9.0.128"} {
		if !strings.Contains(sh(t, f.Hosts[i].Do, "ip -o addr show fl-net"), want+"/24") {
			t.Errorf("host %d does not have the address %s", i+1, want)
		}
	}
	for _, line := range strings.Split(string(page), "\n") {
		if _, commands, ok := strings.Cut(line, "is `fx-` and the network's name, the WireGuard link `fw-`: "); ok {
			for i, command := range strings.Split(commands, "`") {
				if i%2 == 1 && !strings.HasPrefix(command, "wg ") && !strings.HasPrefix(command, "tcpdump ") {
					sh(t, f.Hosts[0].Do, command)
				}
			}
		}
	}
}
