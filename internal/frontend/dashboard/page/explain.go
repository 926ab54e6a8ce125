package page

import (
	"errors"
	"net/url"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
	"fairlead/internal/frontend/dashboard/picture"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/wording"
)

func explain() Page {
	return Page{Path: "explain", Title: "Explain", needs: hasHost, still: true, command: func(q url.Values) string {
		if q.Get("to") == "" {
			return "fairlead explain FROM to [TO]:PORT"
		}
		return "fairlead explain " + escape.Shell(q.Get("from")) + " to " + escape.Shell(q.Get("to"))
	}, Question: "The path of a flow, hop by hop: each route, rule, program and socket that decides, and the end.",
		view: func(v *Visit) []Section {
			from, to := v.Query.Get("from"), v.Query.Get("to")
			ask := Section{ID: "ask", Ask: &Ask{Action: v.link("explain"), Button: "Explain", Fields: []Field{
				{Label: "From: an address, host, localhost or a sandbox", Name: "from", Value: from, Size: 26,
					Example: "192.0.2.7"},
				{Label: "To: [address or sandbox]:port[/udp]", Name: "to", Value: to, Size: 26, Example: ":8080"}}}}
			if from == "" || to == "" {
				return []Section{ask}
			}
			e, err := explained(v, from, to)
			if err != nil {
				ask.Lines = []string{"Explain " + from + " to " + to + ": " + err.Error()}
				return []Section{ask}
			}
			return append([]Section{ask}, explanation(e)...)
		}}
}

// errBusy is why a flow is not explained now.
var errBusy = errors.New("other explanations run: try again in a moment")

// explained explains a flow, unless too many explanations run.
func explained(v *Visit, from, to string) (e flow.Explanation, err error) {
	if strings.ContainsAny(from+to, " \t\r\n") {
		return e, errors.New("want one word for each end of the flow")
	}
	f, err := flow.Parse([]string{from, "to", to})
	if err != nil {
		return e, err
	}
	select {
	case v.Explains <- struct{}{}:
	default:
		return e, errBusy
	}
	defer func() { <-v.Explains }()
	return v.Host.Flow(v.Context, f, nil)
}

// explanation shows a flow as a picture and in words.
func explanation(e flow.Explanation) []Section {
	good := e.Outcome == flow.Delivered
	verdict := Item{State: table.Bad, Mark: string(e.Outcome), What: wording.Endpoints(e.Source, e.Destination) + "/" +
		string(e.Proto), Text: wording.Sentence(e, e.Verdict)}
	switch {
	case good && !e.Uncertain:
		verdict.State = table.OK
	case good, e.Outcome == flow.Leaves, e.Outcome == flow.Unknown:
		verdict.State = table.Warn
	}
	words := Section{ID: "hops", Title: "The hops in words", Lines: append(wording.Remarks(e),
		wording.FurtherLines(e.Further)...)}
	for _, h := range e.Hops {
		what := h.What
		if h.Seen != "" {
			what += " [" + h.Seen + "]"
		}
		hop := Hop{Where: wording.Place(h), What: what}
		program := ""
		if h.Program != "" {
			program = "eBPF program " + h.Program
		}
		for _, more := range append(wording.Candidates(h.Balance), h.By, program, h.Why) {
			if more != "" {
				hop.More = append(hop.More, more)
			}
		}
		words.Hops = append(words.Hops, hop)
	}
	return []Section{{ID: "verdict", Title: "The end", Items: []Item{verdict}},
		{ID: "picture", Title: "The flow as a picture", Picture: picture.Of(e)}, words}
}
