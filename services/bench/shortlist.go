package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/match"
)

const (
	shortlistTools = 500
	shortlistLimit = 10
	shortlistModel = "bench"
	dimensions     = 384
)

// shortlists is B15: the ten best of 500 tools for a request, by words beside a search of
// the same texts for the request's words, and by words and vectors beside the products of
// the same vectors.
func shortlists(ctx context.Context, o Options) ([]Row, error) {
	tools := manyTools()
	texts := make([]string, len(tools))
	vectors := match.Vectors{Model: shortlistModel, Of: map[string][]float32{}}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same vectors in each run
	for i, t := range tools {
		texts[i] = strings.ToLower(t.Name + " " + t.Description)
		vectors.Of[t.Digest()] = unitVector(random)
	}
	const text = "Please let the customers know by mail that the invoices of March were corrected. 明天提醒我開會"
	q := match.Request{Text: text, Limit: shortlistLimit}
	words := match.New(tools)
	lexical, err := shortlist(ctx, o, "by words", words, q, func() { find(texts, strings.Fields(strings.ToLower(text))) })
	if err != nil {
		return nil, err
	}
	q.Vector, q.Model = unitVector(random), shortlistModel
	hybrid, err := shortlist(ctx, o, "by words and vectors", words.With(vectors), q, func() { nearest(vectors, q.Vector) })
	return []Row{lexical, hybrid}, err
}

// shortlist ranks the tools, beside a raw operation.
func shortlist(
	ctx context.Context, o Options, how string, c *match.Catalog, q match.Request, raw func(),
) (Row, error) {
	ours, beside, err := interleave(ctx, o.n(2000), func(context.Context) error {
		if n := len(c.Rank(q)); n != shortlistLimit {
			return fmt.Errorf("%d tools, want %d", n, shortlistLimit)
		}
		return nil
	}, func(context.Context) error {
		raw()
		return nil
	})
	r := absolute("B15", fmt.Sprintf("shortlist of %d tools %s", shortlistTools, how), ms(ours), 5, "ms")
	r.Raw, r.Ratio = ms(beside), float64(ours)/float64(max(beside, time.Nanosecond))
	return r, err
}

// manyTools returns tools with names, descriptions and arguments of usual length.
func manyTools() []tool.Spec {
	verbs := []string{"send", "read", "find", "list", "create", "delete", "update", "move", "copy", "export"}
	objects := strings.Fields(`email invoice file folder note reminder meeting contact ticket order payment report
		chart image video song recipe flight hotel route forecast table query branch commit container server
		alert password translation summary form survey page link product parcel account budget lamp window sensor
		camera playlist course quiz lesson backup certificate domain`)
	var out []tool.Spec
	for i := range shortlistTools {
		verb, object := verbs[i%len(verbs)], objects[i/len(verbs)]
		args, _ := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{
			"id":    map[string]string{"type": "string", "description": "which " + object},
			"since": map[string]string{"type": "string", "description": "a date; earlier ones are left out"},
			"limit": map[string]string{"type": "integer", "description": "the largest number of results"},
		}})
		out = append(out, tool.Spec{
			Name: object + "s:" + verb, Args: args, ScenarioTags: []string{tool.Scenarios()[i%6]},
			Description: fmt.Sprintf("Use it to %s one %s or several of them, and get back what has changed.", verb, object),
		}.Sealed())
	}
	return out
}

func unitVector(random *rand.Rand) []float32 {
	v := make([]float32, dimensions)
	v[random.IntN(dimensions)] = 1
	return v
}

// find counts the texts that contain one of the words.
func find(texts, words []string) (n int) {
	for _, t := range texts {
		for _, w := range words {
			if strings.Contains(t, w) {
				n++
				break
			}
		}
	}
	return n
}

// nearest returns the largest product of the vector with one of the others.
func nearest(v match.Vectors, with []float32) (most float64) {
	for _, other := range v.Of {
		sum := 0.0
		for i := range other {
			sum += float64(other[i]) * float64(with[i])
		}
		most = max(most, sum)
	}
	return most
}
