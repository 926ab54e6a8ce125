package peer

import (
	"fmt"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newCaddy returns the maker of Caddy with its defaults, without its administration
// interface, and with enough connections to the server.
func newCaddy(p suite.Path) rig.Maker {
	return &gateway{Engine: rig.NewEngine(p),
		needs: []rig.Program{{Name: "caddy", Source: "put Caddy's program into PATH (docs/guide/laboratory.md, Gateways)"}},
		command: func(p suite.Path) ([]string, map[string]string) {
			return []string{"caddy", "run", "--config", "/mnt/Caddyfile", "--adapter", "caddyfile"},
				map[string]string{"Caddyfile": caddyConfig(p)}
		},
		environment: []string{"HOME=/mnt", "XDG_DATA_HOME=/mnt", "XDG_CONFIG_HOME=/mnt"}}
}

func caddyConfig(p suite.Path) string {
	at := addressesOf(p)
	return fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	log {
		level ERROR
	}
	servers {
		protocols h1 h2
	}
}
http://%[1]s:%[3]d {
	bind %[2]s
	reverse_proxy %[5]s {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
http://%[1]s:%[8]d {
	bind %[2]s
	reverse_proxy %[9]s {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
https://%[1]s:%[4]d {
	bind %[2]s
	tls /mnt/%[6]s /mnt/%[7]s
	reverse_proxy %[5]s {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
https://%[1]s:%[10]d {
	bind %[2]s
	tls /mnt/%[6]s /mnt/%[7]s
	reverse_proxy %[9]s {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
`, load.Host, at.plain.Addr(), rig.LoadPort, rig.TLSPort, at.upstream, program.ChainFile, program.KeyFile, rig.WebPort,
		at.upstreamWeb, rig.SecureWebPort)
}
