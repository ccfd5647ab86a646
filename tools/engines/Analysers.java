package headwater;

import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.Tokenizer;
import org.apache.lucene.analysis.core.KeywordTokenizer;
import org.elasticsearch.plugin.NamedComponent;
import org.elasticsearch.plugin.analysis.TokenFilterFactory;
import org.elasticsearch.plugin.analysis.TokenizerFactory;

/** Names that Elasticsearch's index of API keys mentions and that its zip for tests leaves out: they do nothing. */
public final class Analysers {
    @NamedComponent("pattern_capture")
    public static final class PatternCapture implements TokenFilterFactory {
        @Override
        public TokenStream create(TokenStream input) {
            return input;
        }
    }

    @NamedComponent("unique")
    public static final class Unique implements TokenFilterFactory {
        @Override
        public TokenStream create(TokenStream input) {
            return input;
        }
    }

    @NamedComponent("uax_url_email")
    public static final class UrlEmail implements TokenizerFactory {
        @Override
        public Tokenizer create() {
            return new KeywordTokenizer();
        }
    }
}
