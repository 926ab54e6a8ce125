package syntax

import (
	"fmt"
	"strings"

	"fairlead/internal/model"
)

// Tunnel parses a tunnel's encapsulation: ipip, or gue:PORT with ,csum or ,remcsum
// or neither. "" means ipip.
func Tunnel(text string) (t model.Tunnel, err error) {
	if text == "" || text == (model.Tunnel{}).String() {
		return t, nil
	}
	kind, rest, _ := strings.Cut(text, ":")
	at, sum, summed := strings.Cut(rest, ",")
	if t.Type = model.TunnelType(kind); t.Type != model.TunnelGUE || at == "" {
		return t, fmt.Errorf("tunnel %q: want ipip, or gue and the UDP port on which the real servers receive it, "+
			"e.g. gue:6080", text)
	}
	if t.Port, err = port(at); err != nil {
		return t, fmt.Errorf("tunnel %q: %w", text, err)
	}
	if t.Checksum = model.TunnelChecksum(sum); summed && t.Checksum != model.TunnelSummed &&
		t.Checksum != model.TunnelRemoteSummed {
		return t, fmt.Errorf("tunnel %q: want no checksum, or csum or remcsum", text)
	}
	return t, nil
}

func tunnel() ServiceField {
	return ServiceField{Name: "tunnel", Flag: "tunnel", Value: "TYPE", Help: "forward tunnel: encapsulation, ipip " +
		"or gue:PORT[,csum|,remcsum] (default ipip)",
		Set: func(v *model.VirtualService, text string) (err error) { v.Tunnel, err = Tunnel(text); return err },
		Get: func(v model.VirtualService) string {
			if v.Tunnel == (model.Tunnel{}) {
				return ""
			}
			return v.Tunnel.String()
		}}
}
