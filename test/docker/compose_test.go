package docker_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"

	"fairlead/internal/lab/dockerd"
)

// composes sends the API requests of Compose for a file in which only the driver was added.
func (h *host) composes() {
	before := h.inventory()
	h.call("/networks/create", `{"Name": "shop_front", "Driver": "fairlead", "CheckDuplicate": true,
		"Labels": {"com.docker.compose.network": "front", "com.docker.compose.project": "shop"},
		"Options": {"com.docker.network.bridge.enable_icc": "true", "com.docker.network.driver.mtu": "1450"},
		"IPAM": {"Config": [{"Subnet": "172.30.0.0/24", "Gateway": "172.30.0.254"}]}}`)
	h.call("/networks/create", `{"Name": "shop_lan", "Driver": "fairlead",
		"Options": {"parent": "up0", "macvlan_mode": "bridge"},
		"IPAM": {"Config": [{"Subnet": "192.0.2.0/24", "Gateway": "192.0.2.1", "IPRange": "192.0.2.128/28", "AuxiliaryAddresses": {"host": "192.0.2.143"}}]}}`)
	h.call("/containers/create?name=shop-web-1", `{"Image": "program", "Cmd": ["serve", "tcp:80"],
		"MacAddress": "02:00:00:00:00:77", "ExposedPorts": {"80/tcp": {}},
		"HostConfig": {"NetworkMode": "shop_front", "PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]}},
		"NetworkingConfig": {"EndpointsConfig": {"shop_front": {"Aliases": ["shop-web-1", "web"]}}}}`)
	h.docker("network", "connect", "--alias", "web", "shop_lan", "shop-web-1")
	h.docker("start", "shop-web-1")
	h.asks("", "tcp", "127.0.0.1:8080") // it would answer the LAN directly through its second network
	inside := h.sh(`nsenter --net=/proc/` + h.docker("inspect", "-f", "{{.State.Pid}}", "shop-web-1") +
		`/ns/net sh -c 'ip -o link; ip -o addr; ip route'`)
	for _, want := range []string{"02:00:00:00:00:77", "mtu 1450", "172.30.0.1/24", "192.0.2.128/24"} {
		if !strings.Contains(inside, want) {
			h.Errorf("the container lacks %s:\n%s", want, inside)
		}
	}
	h.asks(lan, "tcp", "192.0.2.128:80")
	h.asks("", "tcp", "192.0.2.128:80")
	h.docker("run", "--rm", "--network", "shop_front", "program", "ask", "tcp", "web:80")
	h.docker("rm", "-f", "shop-web-1")
	h.docker("network", "rm", "shop_front", "shop_lan")
	h.unchanged(before)
}

// call posts a request to the engine, as a client of 2022 does.
func (h *host) call(path, body string) {
	h.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", h.Root()+dockerd.Socket)
		}}}
	r, err := http.NewRequestWithContext(h.Context(), http.MethodPost, "http://docker/v1.41"+path,
		strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		h.Fatalf("%s: %s: %s", path, answer.Status, text)
	}
}
