import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

/** Announces one event a request, over one client: with a known length, in chunks, and after `100 Continue`. */
class Announcer {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int number = 0; number < 4; number++) {
            String line = "{\"path\":\"java/" + number + "\",\"change\":\"updated\"}\n";
            boolean inChunks = number % 2 == 1;
            BodyPublisher body = inChunks
                ? BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(line.getBytes()))
                : BodyPublishers.ofString(line);
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Authorization", "Bearer " + arguments[1])
                .expectContinue(number == 2)
                .POST(body)
                .build();
            var answer = client.send(request, BodyHandlers.ofString());
            int taken = answer.body().split("\"taken\":")[1].charAt(0) - '0';
            System.out.println(answer.version() + ":" + answer.statusCode() + ":" + taken);
        }
    }
}
