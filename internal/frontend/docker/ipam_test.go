package docker_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

const gatewayType = `"Options": {"RequestAddressType": "com.docker.network.gateway"}`

func TestPools(t *testing.T) {
	p := newPlugin(t)
	p.calls("IpamDriver.GetDefaultAddressSpaces", "",
		`{"LocalDefaultAddressSpace":"fairlead","GlobalDefaultAddressSpace":"fairlead-global"}`)
	p.calls("IpamDriver.RequestPool", `{"Pool": "172.30.0.0/24", "SubPool": "172.30.0.128/25"}`,
		`{"PoolID":"172.30.0.0/24 172.30.0.128/25","Pool":"172.30.0.0/24"}`)
	p.refuses("IpamDriver.RequestPool", `{"Pool": "172.30.0.0/25"}`, "overlaps with 172.30.0.0/24")
	p.refuses("IpamDriver.RequestPool", `{"Pool": "172.30.0.0/24", "SubPool": "172.31.0.0/25"}`, "want a part of")
	p.refuses("IpamDriver.RequestPool", `{"SubPool": "172.31.0.0/25"}`, "its subnet is missing")
	p.refuses("IpamDriver.RequestPool", `{"Pool": "all"}`, "want an address range")
	// The host has the first two, a network the third.
	p.calls("NetworkDriver.CreateNetwork", strings.Replace(created, "172.30.0", "10.201.2", 2), `{}`)
	p.calls("IpamDriver.RequestPool", `{}`, `{"PoolID":"10.201.3.0/24","Pool":"10.201.3.0/24"}`)
	p.calls("IpamDriver.RequestPool", `{}`, `{"PoolID":"10.201.4.0/24","Pool":"10.201.4.0/24"}`)
	for range 2 {
		p.calls("IpamDriver.ReleasePool", `{"PoolID": "10.201.3.0/24"}`, `{}`)
	}
	p.calls("IpamDriver.RequestPool", `{}`, `{"PoolID":"10.201.3.0/24","Pool":"10.201.3.0/24"}`)
	var first, second struct{ Pool string }
	for _, pool := range []any{&first, &second} {
		w := p.post(http.MethodPost, "IpamDriver.RequestPool", strings.NewReader(`{"V6": true}`))
		if err := json.Unmarshal(w.Body.Bytes(), pool); err != nil {
			t.Fatal(err)
		}
		p.start() // the next daemon uses the same range
	}
	of := func(pool string) netip.Prefix {
		p, _ := netip.ParsePrefix(pool)
		return netip.PrefixFrom(p.Addr(), 48).Masked()
	}
	if first.Pool[:2] != "fd" || of(first.Pool) != of(second.Pool) || first == second ||
		!strings.HasSuffix(first.Pool, "/64") {
		t.Errorf("got the IPv6 pools %s and %s", first.Pool, second.Pool)
	}
}

func TestAddresses(t *testing.T) {
	p := newPlugin(t)
	request := func(rest string) string { return `{"PoolID": "172.30.0.0/29"` + rest + `}` }
	p.calls("IpamDriver.RequestPool", `{"Pool": "172.30.0.0/29"}`, `{"PoolID":"172.30.0.0/29","Pool":"172.30.0.0/29"}`)
	p.calls("IpamDriver.RequestAddress", request(`, `+gatewayType), `{"Address":"172.30.0.1/29"}`)
	p.calls("IpamDriver.RequestAddress", request(``), `{"Address":"172.30.0.2/29"}`)
	p.calls("IpamDriver.RequestAddress", request(`, "Address": "172.30.0.4"`), `{"Address":"172.30.0.4/29"}`)
	p.calls("IpamDriver.RequestAddress", request(``), `{"Address":"172.30.0.3/29"}`)
	p.refuses("IpamDriver.RequestAddress", request(`, "Address": "172.30.0.3"`), "already in use")
	p.refuses("IpamDriver.RequestAddress", request(`, "Address": "172.30.1.3"`), "is not in")
	p.calls("IpamDriver.RequestAddress", request(``), `{"Address":"172.30.0.5/29"}`)
	p.refuses("IpamDriver.RequestAddress", request(``), "no address is free") // the last is the host's
	p.calls("IpamDriver.ReleaseAddress", request(`, "Address": "172.30.0.2"`), `{}`)
	p.calls("IpamDriver.ReleaseAddress", request(`, "Address": "172.30.0.2"`), `{}`)
	p.start()
	p.calls("IpamDriver.RequestAddress", request(``), `{"Address":"172.30.0.2/29"}`)
	p.refuses("IpamDriver.RequestAddress", `{"PoolID": "web"}`, "want an address range")
	p.refuses("IpamDriver.RequestAddress", `{}`, "it does not exist")
}

// TestDockerRestarts checks that Docker gets the leases that it requests again after
// its restart, and that other requests do not get them.
func TestDockerRestarts(t *testing.T) {
	p := newPlugin(t)
	const pool, web = `{"Pool": "172.30.0.0/24"}`, `{"PoolID": "172.30.0.0/24", "Address": "172.30.0.9"}`
	leased := func() {
		p.calls("IpamDriver.RequestPool", pool, `{"PoolID":"172.30.0.0/24","Pool":"172.30.0.0/24"}`)
		p.calls("IpamDriver.RequestAddress", `{"PoolID": "172.30.0.0/24", "Address": "172.30.0.1", `+gatewayType+`}`,
			`{"Address":"172.30.0.1/24"}`)
		p.calls("IpamDriver.RequestAddress", web, `{"Address":"172.30.0.9/24"}`)
	}
	leased()
	for _, addr := range []string{"2", "3"} {
		p.calls("IpamDriver.RequestAddress", `{"PoolID": "172.30.0.0/24"}`, `{"Address":"172.30.0.`+addr+`/24"}`)
		p.calls("NetworkDriver.CreateEndpoint", `{"NetworkID": "n", "EndpointID": "`+addr+
			`", "Interface": {"Address": "172.30.0.`+addr+`/24", "MacAddress": "02:00:00:00:00:0`+addr+`"}}`,
			`{"Interface":{}}`)
	}
	p.Dead = map[string]bool{"docker-3": true}
	p.calls("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
	p.calls("IpamDriver.RequestAddress", `{"PoolID": "172.30.0.0/24"}`,
		`{"Address":"172.30.0.3/24"}`) // the container with address 2 may still run
	p.refuses("IpamDriver.RequestPool", `{"Pool": "172.30.0.0/16"}`, "of another network")
	leased()
	p.refuses("IpamDriver.RequestAddress", web, "already in use")

	// If Docker starts before the daemon after a reboot, it does not repeat its
	// requests.
	clear(p.passing)
	p.calls("IpamDriver.RequestAddress", `{"PoolID": "172.30.0.0/24"}`, `{"Address":"172.30.0.2/24"}`)
	clear(p.lasting)
	p.calls("IpamDriver.RequestAddress", `{"PoolID": "172.30.0.0/24", "Address": "172.30.0.9"}`,
		`{"Address":"172.30.0.9/24"}`)

	for _, addr := range []string{"1", "2", "9"} {
		p.calls("IpamDriver.ReleaseAddress", `{"PoolID": "172.30.0.0/24", "Address": "172.30.0.`+addr+`"}`, `{}`)
	}
	p.calls("IpamDriver.ReleasePool", `{"PoolID": "172.30.0.0/24"}`, `{}`)
	if len(p.lasting)+len(p.passing) != 0 {
		t.Errorf("left: %s, %s", p.lasting, p.passing)
	}
}
