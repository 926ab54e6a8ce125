package peer

import (
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newCaddy returns the maker of Caddy with its defaults, without its administration
// interface, and with enough connections to the server.
func newCaddy(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p),
		needs: []rig.Program{{Name: "caddy",
			Source: "put Caddy's program into PATH (docs/guide/laboratory.md, Gateways)"}},
		command:     configured("Caddyfile", "caddy", "run", "--config", "/mnt/Caddyfile", "--adapter", "caddyfile"),
		environment: []string{"HOME=/mnt", "XDG_DATA_HOME=/mnt", "XDG_CONFIG_HOME=/mnt"}}
}
