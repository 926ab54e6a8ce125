package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Names are the container engines' names of the networks of one driver, and of
// the containers in them.
type Names struct {
	// Networks maps the IDs of networks to names, and Containers the IDs of
	// endpoints to names.
	Networks, Containers map[string]string
}

// Names asks all engines for the names. It ignores engines that do not answer.
func (f Finder) Names(ctx context.Context, driver string) Names {
	n := Names{map[string]string{}, map[string]string{}}
	for _, socket := range f.Engines {
		var all []struct{ ID string }
		filter := url.QueryEscape(fmt.Sprintf(`{"driver":[%q]}`, driver))
		if ask(ctx, socket, "/networks?filters="+filter, &all) != nil {
			continue
		}
		for _, network := range all {
			n.add(ctx, socket, network.ID)
		}
	}
	return n
}

// add asks an engine for the containers of a network, and adds the names.
func (n Names) add(ctx context.Context, socket, id string) {
	var network struct {
		Name       string
		Containers map[string]struct{ Name, EndpointID string }
	}
	if ask(ctx, socket, "/networks/"+url.PathEscape(id), &network) != nil {
		return // the network was removed meanwhile
	}
	n.Networks[id] = network.Name
	for _, c := range network.Containers {
		n.Containers[c.EndpointID] = c.Name
	}
}

// ask sends a request to an engine and decodes the JSON answer.
func ask(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := get(ctx, socket, path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
