package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Names are what container engines call the networks of one driver, and the
// containers in them.
type Names struct {
	// Networks are by the networks' ids, and Containers by their endpoints'.
	Networks, Containers map[string]string
}

// Names asks the engines. One that does not answer has none.
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

// add asks an engine for the containers of a network.
func (n Names) add(ctx context.Context, socket, id string) {
	var network struct {
		Name       string
		Containers map[string]struct{ Name, EndpointID string }
	}
	if ask(ctx, socket, "/networks/"+url.PathEscape(id), &network) != nil {
		return // it has just gone
	}
	n.Networks[id] = network.Name
	for _, c := range network.Containers {
		n.Containers[c.EndpointID] = c.Name
	}
}

// ask reads an engine's answer.
func ask(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
