package api

import (
	"encoding/json"
	"math"
	"strconv"
)

// History has the figures of the last hour, one for each sample.
type History struct {
	// Ages are how long before the answer the samples were taken, in seconds, the oldest first.
	Ages []float64 `json:"ages"`
	// Series are the figures by key, in the order of Ages. docs/guide/dashboard.md describes them.
	Series map[string][]Figure `json:"series"`
}

// Figure is a value of a History. It is NaN, and null in JSON, if it is not known.
type Figure float32

// Known reports whether the figure is known.
func (f Figure) Known() bool { return f == f }

// Unknown is a figure that is not known.
func Unknown() Figure { return Figure(math.NaN()) }

// MarshalJSON implements json.Marshaler. Four digits are more than a chart shows.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'g', 4, 32), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Figure) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*f = Unknown()
		return nil
	}
	return json.Unmarshal(text, (*float32)(f))
}
