package dns

import (
	"context"
	"time"

	"github.com/go-acme/lego/v5/challenge"
	"github.com/go-acme/lego/v5/providers/dns/acmedns"
	"github.com/go-acme/lego/v5/providers/dns/cloudflare"
	"github.com/go-acme/lego/v5/providers/dns/digitalocean"
	"github.com/go-acme/lego/v5/providers/dns/duckdns"
	"github.com/go-acme/lego/v5/providers/dns/exec"
	"github.com/go-acme/lego/v5/providers/dns/gandiv5"
	"github.com/go-acme/lego/v5/providers/dns/godaddy"
	"github.com/go-acme/lego/v5/providers/dns/hetzner"
	"github.com/go-acme/lego/v5/providers/dns/httpreq"
	"github.com/go-acme/lego/v5/providers/dns/infomaniak"
	"github.com/go-acme/lego/v5/providers/dns/ionos"
	"github.com/go-acme/lego/v5/providers/dns/namecheap"
	"github.com/go-acme/lego/v5/providers/dns/netcup"
	"github.com/go-acme/lego/v5/providers/dns/ovh"
	"github.com/go-acme/lego/v5/providers/dns/pdns"
	protocol "github.com/mholt/acmez/v3/acme"
)

// openable is an operator of DNS zones that can be chosen.
type openable struct {
	open func() (operator, error)
	// variables are the prefixes of the variables that it reads.
	variables []string
}

// operators are the operators by Traefik's names. Their variables are Traefik's too.
var operators = map[string]openable{
	"rfc2136":      {newDynamicUpdate, []string{"RFC2136_"}},
	"exec":         {lego(exec.NewDNSProvider), []string{"EXEC_"}},
	"httpreq":      {lego(httpreq.NewDNSProvider), []string{"HTTPREQ_"}},
	"acme-dns":     {lego(acmedns.NewDNSProvider), []string{"ACME_DNS_"}},
	"cloudflare":   {lego(cloudflare.NewDNSProvider), []string{"CF_", "CLOUDFLARE_"}},
	"digitalocean": {lego(digitalocean.NewDNSProvider), []string{"DO_"}},
	"duckdns":      {lego(duckdns.NewDNSProvider), []string{"DUCKDNS_"}},
	"gandiv5":      {lego(gandiv5.NewDNSProvider), []string{"GANDIV5_"}},
	"godaddy":      {lego(godaddy.NewDNSProvider), []string{"GODADDY_"}},
	"hetzner":      {lego(hetzner.NewDNSProvider), []string{"HETZNER_"}},
	"infomaniak":   {lego(infomaniak.NewDNSProvider), []string{"INFOMANIAK_"}},
	"ionos":        {lego(ionos.NewDNSProvider), []string{"IONOS_"}},
	"namecheap":    {lego(namecheap.NewDNSProvider), []string{"NAMECHEAP_"}},
	"netcup":       {lego(netcup.NewDNSProvider), []string{"NETCUP_"}},
	"ovh":          {lego(ovh.NewDNSProvider), []string{"OVH_"}},
	"pdns":         {lego(pdns.NewDNSProvider), []string{"PDNS_"}},
}

// library is an operator of package lego, the library that Traefik uses.
type library struct{ challenge.Provider }

// lego returns the constructor of a library's provider, which reads its variables.
func lego[P challenge.Provider](open func() (P, error)) func() (operator, error) {
	return func() (operator, error) {
		p, err := open()
		return library{p}, err
	}
}

func (l library) add(ctx context.Context, _, _, _ string, c protocol.Challenge) error {
	return l.Present(ctx, c.Identifier.Value, c.Token, c.KeyAuthorization)
}

func (l library) remove(ctx context.Context, _, _, _ string, c protocol.Challenge) error {
	return l.CleanUp(ctx, c.Identifier.Value, c.Token, c.KeyAuthorization)
}

func (l library) patience() time.Duration {
	if p, ok := l.Provider.(challenge.ProviderTimeout); ok {
		timeout, _ := p.Timeout()
		return timeout
	}
	return 0
}
