package syntax_test

import (
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/syntax"
)

func TestTunnel(t *testing.T) {
	for word, want := range map[string]model.Tunnel{
		"ipip": {}, "gue:6080": {Type: model.TunnelGUE, Port: 6080},
		"gue:1,csum":        {Type: model.TunnelGUE, Port: 1, Checksum: model.TunnelSummed},
		"gue:65535,remcsum": {Type: model.TunnelGUE, Port: 65535, Checksum: model.TunnelRemoteSummed},
	} {
		if got, err := syntax.Tunnel(word); err != nil || got != want || got.String() != word {
			t.Errorf("%s is read as %+v: %v", word, got, err)
		}
	}
	for word, want := range map[string]string{
		"gre": "want ipip, or gue", "gue": "want ipip, or gue and", "gue:0": "want 1 to 65535",
		"gue:6080,": "want no checksum", "gue:6080,crc": "csum or remcsum", "ipip:1": "want ipip",
	} {
		if _, err := syntax.Tunnel(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
}
